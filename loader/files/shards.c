/* A sharded repository: an index and the files that it names. */
#include "source.h"

#include "../../base/utf8.h"
#include "folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the names of the shards, each once, sorted, or NULL if there is no memory. The caller
 * frees the array. The texts belong to the map. */
static const char **shard_names(const struct weight_map *map, size_t *ret_count)
{
	const char **names = calloc(map->count, sizeof(*names));
	size_t count = 0;

	for (size_t i = 0; names && i < map->count; i++)
		names[i] = map->places[i].shard;
	if (names)
		qsort(names, map->count, sizeof(*names), compare_names);
	for (size_t i = 0; names && i < map->count; i++)
		if (count == 0 || strcmp(names[count - 1], names[i]) != 0)
			names[count++] = names[i];
	*ret_count = count;
	return names;
}

static int open_shard(const struct roots *roots, const char *folder, const char *name,
		      const struct source_file *index, struct source *source, struct error *error)
{
	struct source_file *file = &source->files[source->file_count];
	char *path = source_path(folder, name);
	int r;

	if (!path)
		return error_set(error, -ENOMEM, NULL, "%s: out of memory", index->path);
	r = source_file_open(roots, path, file, error);
	if (r == -ENOENT)
		r = error_set(error, -ENOENT, "is the download complete?",
			      "%s names the shard %s, which is missing", index->path, path);
	free(path);
	if (r < 0)
		return r;
	source->file_count++;
	return source_file_parse(file, error);
}

int shards_open(const struct roots *roots, const char *folder, const struct source_file *index,
		const struct weight_map *map, struct source *source, struct error *error)
{
	size_t count;
	const char **names = shard_names(map, &count);
	int r = 0;

	source->files = calloc(count + 1, sizeof(*source->files));
	if (!names || !source->files)
		r = error_set(error, -ENOMEM, NULL, "%s: out of memory", index->path);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = open_shard(roots, folder, names[i], index, source, error);
	free(names);
	return r;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct source_tensor *x = *(const struct source_tensor *const *)a,
				   *y = *(const struct source_tensor *const *)b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->file > y->file) - (x->file < y->file);
}

int shards_sort(const struct source *source, size_t first, size_t count,
		const struct source_tensor ***ret_sorted, struct error *error)
{
	const struct source_tensor **sorted = calloc(count + 1, sizeof(*sorted));

	if (!sorted)
		return error_set(error, -ENOMEM, NULL, "no room to compare the names of %zu tensors", count);
	for (size_t i = 0; i < count; i++)
		sorted[i] = &source->tensors[first + i];
	qsort(sorted, count, sizeof(*sorted), compare_tensors);
	for (size_t i = 1; i < count; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) {
			error_set(error, -EBADMSG, "a tensor lies in one shard",
				  "tensor \"%.*s\" is in two shards: %s and %s", text_shown(sorted[i]->name),
				  sorted[i]->name, source->files[sorted[i - 1]->file].path,
				  source->files[sorted[i]->file].path);
			free(sorted);
			return -EBADMSG;
		}
	*ret_sorted = sorted;
	return 0;
}

/* Both lists are sorted by name. */
static int check_map(const struct source_file *index, const struct source *source, const struct weight_map *map,
		     const struct source_tensor *const *sorted, struct error *error)
{
	size_t at = 0;

	for (size_t i = 0; i < map->count; i++) {
		const struct weight_place *place = &map->places[i];
		const char *found = NULL;

		while (at < source->tensor_count && strcmp(sorted[at]->name, place->tensor) < 0)
			at++;
		if (at < source->tensor_count && strcmp(sorted[at]->name, place->tensor) == 0)
			found = strrchr(source->files[sorted[at]->file].path, '/') + 1;
		if (found && strcmp(found, place->shard) == 0)
			continue;
		return error_set(error, -EBADMSG, "the index and its shards must come from one model",
				 "%s: tensor \"%.*s\" is not in its shard %.*s%s%.*s", index->path,
				 text_shown(place->tensor), place->tensor, text_shown(place->shard),
				 place->shard, found ? ", but in " : "", found ? text_shown(found) : 0,
				 found ? found : "");
	}
	return 0;
}

int shards_check(const struct source_file *index, struct source *source, const struct weight_map *map,
		 struct error *error)
{
	const struct source_tensor **sorted;
	int r = shards_sort(source, 0, source->tensor_count, &sorted, error);

	if (r < 0)
		return r;
	r = check_map(index, source, map, sorted, error);
	free(sorted);
	if (r < 0)
		return r;
	/* Figures that are wrong do no harm: they are noted. */
	if (map->has_total && map->total != (double)source->bytes)
		source_note(source, "%s: total_size says %.0f bytes, the shards hold %llu", index->path,
			    map->total, (unsigned long long)source->bytes);
	else if (map->count != source->tensor_count)
		source_note(source, "%s: the map names %zu tensors, the shards hold %zu", index->path,
			    map->count, source->tensor_count);
	return 0;
}
