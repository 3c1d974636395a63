#include "source.h"

#include "folder.h"

#include "../../base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int source_no_memory(const char *path, struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "%s: out of memory", path);
}

void source_note(struct source *source, const char *format, ...)
{
	va_list args;
	size_t i = 0;

	while (i < SOURCE_NOTES_MAX && source->notes[i][0])
		i++;
	assert(i < SOURCE_NOTES_MAX);
	va_start(args, format);
	vsnprintf(source->notes[i], sizeof(source->notes[i]), format, args);
	va_end(args);
}

static int gather_tensors(const char *path, struct source *source, struct error *error)
{
	size_t count = 0;

	for (size_t i = 0; i < source->file_count; i++)
		count += source->files[i].content.count;
	source->tensors = calloc(count + 1, sizeof(*source->tensors));
	if (!source->tensors)
		return source_no_memory(path, error);
	for (size_t i = 0; i < source->file_count; i++) {
		const struct format_content *content = &source->files[i].content;

		for (size_t k = 0; k < content->count; k++) {
			const struct format_tensor *tensor = &content->tensors[k];

			source->tensors[source->tensor_count++] = (struct source_tensor){
				.name = tensor->name,
				.dtype = tensor->dtype,
				.ndim = tensor->ndim,
				.shape = tensor->shape,
				.file = (uint32_t)i,
				.offset = tensor->offset,
				.bytes = tensor->bytes,
			};
			source->bytes += tensor->bytes;
		}
	}
	return 0;
}

/* Fails with -ENOENT if the folder has no such file. */
static int open_in_folder(const struct roots *roots, const char *folder, const char *name,
			  struct source_file *ret, struct error *error)
{
	char *path = source_path(folder, name);
	int r;

	if (!path)
		return source_no_memory(folder, error);
	r = source_file_open(roots, path, ret, error);
	free(path);
	return r;
}

static int add_single(struct source *source, struct source_file *file, struct error *error)
{
	source->files = calloc(1, sizeof(*source->files));
	if (!source->files) {
		source_file_close(file);
		return source_no_memory("source", error);
	}
	source->files[source->file_count++] = *file;
	return source_file_parse(&source->files[0], error);
}

static int open_sharded(const struct roots *roots, const char *folder, const struct source_file *index,
			struct source *source, struct error *error)
{
	struct weight_map map;
	int r = weight_map_read(index, &map, error);

	if (r < 0)
		return r;
	r = shards_open(roots, folder, index, &map, source, error);
	if (r == 0)
		r = gather_tensors(folder, source, error);
	if (r == 0)
		r = shards_check(index, source, &map, error);
	weight_map_clear(&map);
	return r;
}

/* Opens an index with its shards, or a single file. */
static int open_whole(const struct roots *roots, const struct folder *folder, struct source *source,
		      struct error *error)
{
	struct source_file file;
	const char *name;
	char warning[TEXT_BYTES_MAX + 1];
	int r = folder_choose(folder, &name, warning, error);

	if (r == 0 && warning[0])
		source_note(source, "%s", warning);
	if (r == 0)
		r = open_in_folder(roots, folder->path, name, &file, error);
	if (r < 0)
		return r;
	if (format_is_index(name)) {
		source->index = strdup(name);
		r = source->index ? open_sharded(roots, folder->path, &file, source, error)
				  : source_no_memory(folder->path, error);
		source_file_close(&file);
		return r;
	}
	r = add_single(source, &file, error);
	return r < 0 ? r : gather_tensors(folder->path, source, error);
}

static int open_folder(const struct roots *roots, struct folder folder, struct source *source,
		       struct error *error)
{
	int r;

	error->code = 0;
	r = ranks_open(roots, &folder, source, error);
	if (r == 0)
		r = gather_tensors(folder.path, source, error);
	if (r == 0)
		r = ranks_place(source, error);
	if (r == -ENOENT && !error->code)
		r = open_whole(roots, &folder, source, error);
	folder_clear(&folder);
	return r;
}

/* Opens a file, or the files of a folder. */
static int open_path(const struct roots *roots, const char *path, struct source *source, struct error *error)
{
	struct source_file file;
	struct folder folder;
	int r = source_file_open(roots, path, &file, error);

	if (r < 0)
		return r;
	if (!S_ISDIR(file.stat.st_mode)) {
		r = add_single(source, &file, error);
		return r < 0 ? r : gather_tensors(path, source, error);
	}
	source->folder = file;
	r = folder_list(&source->folder, &folder, error);
	return r < 0 ? r : open_folder(roots, folder, source, error);
}

/* Makes one rank of all files, if they are not per rank. */
static int one_rank(const char *path, struct source *source, struct error *error)
{
	source->ranks = calloc(1, sizeof(*source->ranks));
	if (!source->ranks)
		return source_no_memory(path, error);
	source->ranks[0] = (struct source_rank){
		.file_count = source->file_count,
		.tensor_count = source->tensor_count,
		.bytes = source->bytes,
	};
	source->world = 1;
	return 0;
}

/* ---- a choice of tensors ------------------------------------------------- */

/* Whether a glob matches. Sets matched[i] of those that do, as far as they are asked. */
static bool is_chosen(const struct load_choice *choice, const char *name, bool matched[LOAD_GLOBS_MAX])
{
	bool chosen = false;

	for (uint32_t i = 0; i < choice->only.count; i++) {
		if (chosen && matched[i])
			continue;
		if (fnmatch(choice->only.items[i], name, FNM_NOESCAPE) == 0)
			chosen = matched[i] = true;
	}
	return chosen;
}

/* Keeps the chosen tensors of a rank, behind those of the ranks before. */
static void choose_of_rank(const struct load_choice *choice, struct source *source, struct source_rank *rank,
			   bool matched[LOAD_GLOBS_MAX])
{
	const size_t first = source->tensor_count;

	rank->bytes = 0;
	for (size_t i = rank->tensor; i < rank->tensor + rank->tensor_count; i++) {
		if (!is_chosen(choice, source->tensors[i].name, matched))
			continue;
		rank->bytes += source->tensors[i].bytes;
		source->tensors[source->tensor_count++] = source->tensors[i];
	}
	rank->tensor = first;
	rank->tensor_count = source->tensor_count - first;
	source->bytes += rank->bytes;
}

static int refuse_glob(const char *path, const char *glob, const char *example, size_t count,
		       struct error *error)
{
	char remedy[TEXT_BYTES_MAX + 1];

	snprintf(remedy, sizeof(remedy), "a glob is for the whole name, and one of the names is \"%.*s\"",
		 text_shown(example), example);
	return error_set(error, -ENOENT, count > 0 ? remedy : "leave the globs out",
			 "%.512s: none of its %zu tensors matches \"%s\"", path, count, glob);
}

static int choose_tensors(const char *path, const struct load_choice *choice, struct source *source,
			  struct error *error)
{
	const size_t count = source->tensor_count;
	const char *example = count > 0 ? source->tensors[0].name : "";
	bool matched[LOAD_GLOBS_MAX] = {false};

	if (choice->only.count == 0)
		return 0;
	source->tensor_count = 0;
	source->bytes = 0;
	for (uint32_t i = 0; i < source->world; i++)
		choose_of_rank(choice, source, &source->ranks[i], matched);
	for (uint32_t i = 0; i < choice->only.count; i++) {
		if (!matched[i])
			return refuse_glob(path, choice->only.items[i], example, count, error);
	}
	source_note(source, "%zu of %zu tensors, by --only", source->tensor_count, count);
	return 0;
}

/* ---- writers that nobody sees ---- */

static void note_unseen(const struct roots *roots, struct source *source)
{
	const struct source_file *first = NULL;
	size_t count = 0;
	char more[40] = "";

	for (size_t i = 0; i < source->file_count; i++) {
		if (!source->files[i].lease.unseen)
			continue;
		first = first ? first : &source->files[i];
		count++;
	}
	if (!first)
		return;
	if (count > 1)
		snprintf(more, sizeof(more), " and of %zu more files", count - 1);
	source_note(
		source,
		"who changes bytes of %.256s%s through a mapping (mmap) while they are read is not seen: %s%s",
		first->path, more, first->lease.unseen,
		roots->handed ? "" : "; gpuwmctl verify --source compares the version with its files");
}

int source_open(const char *path, const struct load_choice *choice, const struct roots *roots,
		struct source *ret, struct error *error)
{
	struct source source = {0};
	struct folder folder;
	int r;

	if (roots->handed) {
		source.folder = (struct source_file){.path = strdup(path), .fd = -1};
		if (!source.folder.path)
			return source_no_memory(path, error);
		r = folder_list_handed(roots->handed, &folder, error);
		if (r == 0)
			r = open_folder(roots, folder, &source, error);
	} else {
		r = open_path(roots, path, &source, error);
	}
	if (r == 0 && !source.world)
		r = one_rank(path, &source, error);
	if (r == 0)
		r = choose_tensors(path, choice, &source, error);
	if (r == 0)
		note_unseen(roots, &source);
	if (r < 0) {
		source_close(&source);
		return r;
	}
	*ret = source;
	return 0;
}

void source_close(struct source *source)
{
	for (size_t i = 0; i < source->file_count; i++)
		source_file_close(&source->files[i]);
	for (size_t i = 0; i < source->extra_count; i++) {
		free(source->extras[i].name);
		free(source->extras[i].data);
	}
	if (source->folder.path)
		source_file_close(&source->folder);
	free(source->index);
	free(source->files);
	free(source->tensors);
	free(source->extras);
	free(source->ranks);
	memset(source, 0, sizeof(*source));
}
