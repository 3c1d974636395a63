/* The ranks of a load, and the tensors that each of them gets. */
#include "load_internal.h"

#include <errno.h>
#include <stdlib.h>

/* Makes room for `world` ranks with `tensors` specs in all. */
static int make_ranks(struct load *load, size_t tensors)
{
	load->ranks = calloc(load->world, sizeof(*load->ranks));
	load->specs = calloc(tensors + 1, sizeof(*load->specs));
	load->digests = calloc(tensors + 1, sizeof(*load->digests));
	if (load->ranks && load->specs && load->digests)
		return 0;
	return error_set(load->error, -ENOMEM, NULL, "no room to load %zu tensors", load->source.tensor_count);
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
				 load->params->wish.source, source->world, PARTS_PER_VERSION_MAX);
	load->world = source->world;
	load->bytes = source->bytes;
	if (make_ranks(load, source->tensor_count) < 0)
		return load->error->code;
	for (uint32_t i = 0; i < load->world; i++)
		load->ranks[i] = source->ranks[i];
	for (size_t i = 0; i < source->tensor_count; i++)
		set_spec(load, i, &source->tensors[i], source->tensors[i].shape);
	return 0;
}

/* Every rank has the metadata of all files. */
static int cut_ranks(struct load *load)
{
	const struct source *source = &load->source;
	const struct cut *cut = &load->cut;
	int r = cut_make(source, load->params->wish.choice.cut, (uint32_t)*load->params->wish.choice.ranks,
			 &load->cut, load->error);

	if (r < 0)
		return r;
	load->world = cut->rank_count;
	load->bytes = cut->bytes;
	if (make_ranks(load, cut->share_count) < 0)
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

int load_make_ranks(struct load *load)
{
	size_t split = 0, copied = 0, kept = 0;
	int r;

	if (!load->params->wish.choice.cut)
		return take_ranks(load);
	r = cut_ranks(load);
	if (r < 0)
		return r;
	for (size_t i = 0; i < load->source.tensor_count; i++) {
		const struct cut_tensor *tensor = &load->cut.tensors[i];

		if (cut_is_split(tensor))
			split++;
		else if (tensor->only == CUT_EVERY_RANK)
			copied++;
		else
			kept++;
	}
	for (size_t i = 0; i < load->cut.missing_count; i++)
		work_note(load->work, "config.json does not say %s: whether heads stay whole is not known",
			  load->cut.missing[i]);
	work_note(load->work,
		  "cut into %u rank%s: %zu tensors are split, %zu copied to all ranks, %zu kept by one",
		  load->world, load->world == 1 ? "" : "s", split, copied, kept);
	return 0;
}

void load_clear_ranks(struct load *load)
{
	free(load->specs);
	free(load->digests);
	free(load->ranks);
	cut_clear(&load->cut);
}
