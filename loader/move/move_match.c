#include "move_internal.h"

#include "../../base/utf8.h"

#include "../../proto/index/strided.h"
#include "../../proto/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHANGED "the files changed since they were described: bring back those of the version, or retire it"
#define GONE "the version is described by these files: bring them back, or retire it"
/* Whether the version has its memory still is not known here. */
#define DIFFERS                                                                                                \
	"the files changed since they were described: bring back those of the version, or write new ones (gpuwmctl save)"
/* The version has its memory still. */
#define OTHERS "the version stays where it is: describe it by its own files, or have gpuwmctl save write them"

static int match_no_memory(const struct move_files *files)
{
	return error_set(files->move->error, -ENOMEM, NULL, "no room to find %u tensors",
			 files->move->index.view.header->tensor_count);
}

/* Returns the remedy: `described` if the files are all that the version has. */
static const char *remedy(const struct move_files *files, const char *described)
{
	if (files->move->verifies)
		return DIFFERS;
	return tier_has_memory(files->move->to) ? described : OTHERS;
}

static const char *path_of(const struct move_files *files, const struct source_tensor *tensor)
{
	return files->source.files[tensor->file].path;
}

int files_compare(const struct move_files *files, const struct source_tensor *tensor, uint32_t position,
		  const struct digest *digest, struct error *error)
{
	const struct job_move_params *params = files->move->params;
	const struct digest *said = &files->move->index.view.tensors[position].digest;
	char wanted[VERSION_ID_TEXT], found[VERSION_ID_TEXT];

	if (digest_equal(said, digest))
		return 0;
	hex128_format(said->bytes, wanted);
	hex128_format(digest->bytes, found);
	return error_set(error, -EBADMSG, remedy(files, CHANGED),
			 "tensor \"%.*s\" in %s has digest %s, the index of %s@%s says %s",
			 text_shown(tensor->name), tensor->name, path_of(files, tensor), found, params->model,
			 params->tag, wanted);
}

/* ---- finding ---------------------------------------------------------------- */

static int compare_form(const struct move_files *files, const struct source_tensor *tensor, uint32_t position)
{
	const struct job_move_params *params = files->move->params;
	const struct index_view *view = &files->move->index.view;
	const struct index_tensor *of = &view->tensors[position];
	bool same = tensor->dtype == of->dtype && tensor->ndim == of->ndim && tensor->bytes == of->bytes &&
		    memcmp(tensor->shape, index_shape(view, of), of->ndim * sizeof(*tensor->shape)) == 0;

	if (same)
		return 0;
	return error_set(
		files->move->error, -EBADMSG, remedy(files, CHANGED),
		"tensor \"%.*s\" in %s is %s with %u dimensions and %llu bytes; of %s@%s it is %s with %u "
		"dimensions and %llu bytes, or has another shape",
		text_shown(tensor->name), tensor->name, path_of(files, tensor), dtype_name(tensor->dtype),
		tensor->ndim, (unsigned long long)tensor->bytes, params->model, params->tag,
		dtype_name(of->dtype), of->ndim, (unsigned long long)of->bytes);
}

bool files_shared(const struct move_files *files, uint32_t position)
{
	return !move_makes(files->move, files->move->index.view.tensors[position].segment);
}

static void list_add(struct files_list *list, const struct source_tensor *tensor, uint32_t position,
		     bool is_read)
{
	list->tensors[list->count] = *tensor;
	list->index[list->count++] = position;
	list->bytes += is_read ? tensor->bytes : 0;
}

/* What the index does not have is left alone. */
static int add_tensor(struct move_files *files, const struct source_tensor *tensor, bool *found)
{
	const struct index_view *view = &files->move->index.view;
	int64_t position = index_find(view, tensor->name);
	const struct index_tensor *of;
	bool is_read;
	int r;

	if (position < 0)
		return 0;
	r = compare_form(files, tensor, (uint32_t)position);
	if (r < 0)
		return r;
	of = &view->tensors[position];
	found[position] = true;
	is_read = !files_shared(files, (uint32_t)position);
	if (!is_read && !files->move->params->choice.cut) /* a cut lists all */
		return 0;
	if (strided_is_plain(of->dtype, of->ndim, index_shape(view, of), index_strides(view, of)))
		list_add(&files->plain, tensor, (uint32_t)position, is_read);
	else
		list_add(&files->strided, tensor, (uint32_t)position, is_read);
	return 0;
}

static int check_found(const struct move_files *files, const bool *found)
{
	const struct job_move_params *params = files->move->params;
	const struct index_view *view = &files->move->index.view;
	uint32_t i = 0;
	const char *name;

	while (i < view->header->tensor_count && found[i])
		i++;
	if (i == view->header->tensor_count)
		return 0;
	name = index_tensor_name(view, &view->tensors[i]);
	return error_set(files->move->error, -EBADMSG, remedy(files, CHANGED),
			 "%s has no tensor \"%.*s\", which %s@%s has", params->source, text_shown(name), name,
			 params->model, params->tag);
}

static int list_make(struct files_list *list, size_t count)
{
	list->tensors = calloc(count + 1, sizeof(*list->tensors));
	list->index = calloc(count + 1, sizeof(*list->index));
	return list->tensors && list->index ? 0 : -ENOMEM;
}

static int find_all(struct move_files *files, const struct source_tensor *tensors, size_t count)
{
	bool *found = calloc((size_t)files->move->index.view.header->tensor_count + 1, sizeof(*found));
	int r = found ? 0 : match_no_memory(files);

	if (r == 0 && (list_make(&files->plain, count) < 0 || list_make(&files->strided, count) < 0))
		r = match_no_memory(files);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add_tensor(files, &tensors[i], found);
	if (r == 0)
		r = check_found(files, found);
	free(found);
	return r;
}

/* ---- a source that is cut ------------------------------------------------------ */

size_t files_first(const struct move_files *files)
{
	return files->move->params->choice.cut ? files->cut.ranks[files->move->params->place.rank].first : 0;
}

size_t files_digests(const struct move_files *files)
{
	return files->move->params->choice.cut ? files->cut.share_count : files->plain.count;
}

/* What the rank gets of its tensors. */
static int list_shares(const struct move_files *files, struct source_tensor **ret, size_t *ret_count)
{
	const struct cut_rank *rank = &files->cut.ranks[files->move->params->place.rank];
	struct source_tensor *tensors = calloc(rank->count + 1, sizeof(*tensors));

	if (!tensors)
		return match_no_memory(files);
	for (size_t i = 0; i < rank->count; i++) {
		const struct cut_share *share = &files->cut.shares[rank->first + i];

		tensors[i] = files->source.tensors[share->tensor];
		tensors[i].shape = share->shape;
		tensors[i].bytes = share->bytes;
	}
	*ret = tensors;
	*ret_count = rank->count;
	return 0;
}

/* The copy passes over what has no bytes. */
static void leave_out_shared(struct move_files *files)
{
	const size_t first = files_first(files);

	for (size_t i = 0; i < files->plain.count; i++) {
		struct cut_tensor *tensor = &files->cut.tensors[files->cut.shares[first + i].tensor];

		if (files_shared(files, files->plain.index[i]))
			tensor->row = tensor->run = 0;
	}
}

static int find_shares(struct move_files *files)
{
	const struct job_move_params *params = files->move->params;
	struct source_tensor *tensors = NULL;
	size_t count = 0;
	int r = 0;

	if (*params->choice.ranks != params->place.world)
		return error_set(files->move->error, -EINVAL, NULL,
				 "the job is of %" PRIu64 " ranks, and its source is cut into %" PRIu64,
				 params->place.world, *params->choice.ranks);
	r = cut_make(&files->source, params->choice.cut, (uint32_t)*params->choice.ranks, &files->cut,
		     files->move->error);
	if (r == 0)
		r = list_shares(files, &tensors, &count);
	if (r == 0)
		r = find_all(files, tensors, count);
	free(tensors);
	if (r < 0)
		return r;
	/* Every share has a place in the version's memory. */
	if (files->plain.count != count)
		return error_set(files->move->error, -EBADMSG, remedy(files, CHANGED),
				 "%s gives rank %" PRIu64 " %zu tensors by the plan, of which %s@%s has %zu",
				 params->source, params->place.rank, count, params->model, params->tag,
				 files->plain.count);
	leave_out_shared(files);
	return 0;
}

/* ---- a source that is not ------------------------------------------------------- */

static int find_rank(struct move_files *files)
{
	const struct job_move_params *params = files->move->params;
	const struct source *source = &files->source;
	const struct source_rank *rank;

	if (source->world != params->place.world)
		return error_set(files->move->error, -EBADMSG, remedy(files, CHANGED),
				 "%s has files for %u rank%s, but %s@%s has %" PRIu64 " rank%s", params->source,
				 source->world, source->world == 1 ? "" : "s", params->model, params->tag,
				 params->place.world, params->place.world == 1 ? "" : "s");
	rank = &source->ranks[params->place.rank];
	return find_all(files, source->tensors + rank->tensor, rank->tensor_count);
}

/* ---- opening ---------------------------------------------------------------- */

/* The files that a publisher has passed are those that the loader will find by the path, when the version comes back. */
static int check_path(struct move_files *files)
{
	const struct move *move = files->move;
	int r = 0;

	for (size_t i = 0; r == 0 && i < files->source.file_count; i++) {
		const struct source_file *passed = &files->source.files[i];
		struct source_file found;
		struct error why;

		if (source_file_open(move->roots, passed->path, &found, &why) == 0) {
			if (found.stat.st_dev != passed->stat.st_dev ||
			    found.stat.st_ino != passed->stat.st_ino)
				r = -EACCES;
			source_file_close(&found);
		} else {
			r = -EACCES;
		}
	}
	return r == 0 ? 0
		      : error_set(move->error, r, "no link below a root may lead to them",
				  "%s is not where the files lie that were passed", move->params->source);
}

static int open_passed(struct move_files *files)
{
	const struct move *move = files->move;
	struct roots roots = *move->roots;
	int r = handed_receive(move->files, move->params->source, move->work, &files->handed, move->error);

	roots.handed = &files->handed;
	if (r == 0)
		r = source_open(move->params->source, &move->params->choice, &roots, &files->source,
				move->error);
	return r < 0 ? r : check_path(files);
}

int files_open(struct move_files *files)
{
	const struct job_move_params *params = files->move->params;
	struct error *error = files->move->error, why;
	int r = files->move->files >= 0 ? open_passed(files)
					: source_open(params->source, &params->choice, files->move->roots,
						      &files->source, error);

	/* The remedies of a load are about files that were never loaded. */
	if (r == -ENOENT || r == -EBADMSG) {
		why = *error;
		return error_set(error, r, remedy(files, r == -ENOENT ? GONE : CHANGED), "%s", why.message);
	}
	if (r < 0)
		return r;
	return params->choice.cut ? find_shares(files) : find_rank(files);
}

void files_close(struct move_files *files)
{
	free(files->plain.tensors);
	free(files->plain.index);
	free(files->strided.tensors);
	free(files->strided.index);
	cut_clear(&files->cut);
	source_close(&files->source);
	handed_close(&files->handed);
}
