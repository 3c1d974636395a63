/* The ranks of a load, and the tensors that each of them gets. */
#include "load_internal.h"

#include <errno.h>
#include <stdlib.h>

static int no_memory(const struct load *load)
{
	return error_set(load->error, -ENOMEM, NULL, "no room to load %zu tensors", load->source.tensor_count);
}

static int make_room(struct load *load, size_t tensors)
{
	load->ranks = calloc(load->world, sizeof(*load->ranks));
	load->specs = calloc(tensors + 1, sizeof(*load->specs));
	load->digests = calloc(tensors + 1, sizeof(*load->digests));
	return load->ranks && load->specs && load->digests ? 0 : no_memory(load);
}

static void set_spec(struct load *load, size_t position, const struct source_tensor *tensor,
		     const uint64_t *shape)
{
	load->specs[position] = (struct gpuwm_tensor_spec){
		.name = tensor->name,
		.dtype = tensor->dtype,
		.ndim = tensor->ndim,
		.shape = shape,
	};
}

/* Takes the ranks as the source has them. */
static int take_ranks(struct load *load)
{
	const struct source *source = &load->source;

	if (source->world > PARTS_PER_VERSION_MAX)
		return error_set(load->error, -EFBIG, NULL, "%s has files for %u ranks, above the limit of %d",
				 load->job->source, source->world, PARTS_PER_VERSION_MAX);
	load->world = source->world;
	load->bytes = source->bytes;
	if (make_room(load, source->tensor_count) < 0)
		return load->error->code;
	for (uint32_t i = 0; i < load->world; i++)
		load->ranks[i] = source->ranks[i];
	for (size_t i = 0; i < source->tensor_count; i++)
		set_spec(load, i, &source->tensors[i], source->tensors[i].shape);
	return 0;
}

/* Every rank has the metadata of the first file. */
static int cut_ranks(struct load *load)
{
	const struct source *source = &load->source;
	const struct cut *cut = &load->cut;
	int r = cut_make(source, load->job->cut, load->job->ranks, &load->cut, load->error);

	if (r < 0)
		return r;
	load->world = cut->rank_count;
	load->bytes = cut->bytes;
	if (make_room(load, cut->share_count) < 0)
		return load->error->code;
	for (uint32_t i = 0; i < load->world; i++)
		load->ranks[i] = (struct source_rank){
			.file_count = source->file_count,
			.tensor = cut->ranks[i].first,
			.tensor_count = cut->ranks[i].count,
			.bytes = cut->ranks[i].bytes,
		};
	for (size_t i = 0; i < cut->share_count; i++)
		set_spec(load, i, &source->tensors[cut->shares[i].tensor], cut->shares[i].shape);
	return 0;
}

static void tell_cut(const struct load *load)
{
	size_t split = 0, copied = 0, kept = 0;

	for (size_t i = 0; i < load->source.tensor_count; i++) {
		const struct cut_tensor *tensor = &load->cut.tensors[i];

		if (cut_is_split(tensor))
			split++;
		else if (tensor->only == CUT_EVERY_RANK)
			copied++;
		else
			kept++;
	}
	work_note(load->work,
		  "cut into %u rank%s: %zu tensors are split, %zu copied to all ranks, %zu kept by one",
		  load->world, load->world == 1 ? "" : "s", split, copied, kept);
}

int load_make_ranks(struct load *load)
{
	int r = load->job->cut ? cut_ranks(load) : take_ranks(load);

	if (r == 0 && load->job->cut)
		tell_cut(load);
	return r;
}

void load_clear_ranks(struct load *load)
{
	free(load->specs);
	free(load->digests);
	free(load->ranks);
	cut_clear(&load->cut);
}
