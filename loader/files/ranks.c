/* A folder with files per rank, as vLLM's sharded_state writes them:
 * model-rank-RANK-part-PART.safetensors. Both numbers are decimal and count from 0. */
#include "folder.h"
#include "source.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 1000000 /* of a rank or part: far above what there is, and no sum of them overflows */

struct rank_file {
	uint32_t rank, part;
	const struct format *format;
};

struct listing {
	const struct folder *folder;
	struct rank_file *files;
	size_t count;
	const char *other; /* a file or index that belongs to no rank; NULL: there is none */
};

/* Reads a decimal number without leading zeros, and moves *text behind it. */
static bool take_number(const char **text, uint32_t *ret)
{
	uint32_t value = 0;
	const char *at = *text;

	for (; *at >= '0' && *at <= '9' && value < NUMBER_MAX; at++)
		value = value * 10 + (uint32_t)(*at - '0');
	if (at == *text || value >= NUMBER_MAX || (**text == '0' && at > *text + 1))
		return false;
	*text = at;
	*ret = value;
	return true;
}

static bool take_text(const char **text, const char *expected)
{
	size_t length = strlen(expected);

	if (strncmp(*text, expected, length) != 0)
		return false;
	*text += length;
	return true;
}

static bool parse_name(const char *name, struct rank_file *ret)
{
	ret->format = format_of_name(name);
	return ret->format && take_text(&name, "model-rank-") && take_number(&name, &ret->rank) &&
	       take_text(&name, "-part-") && take_number(&name, &ret->part) &&
	       strcmp(name, ret->format->file_end) == 0;
}

static void format_name(struct rank_file file, char *name, size_t size)
{
	snprintf(name, size, "model-rank-%u-part-%u%s", file.rank, file.part, file.format->file_end);
}

static int ranks_no_memory(const struct folder *folder, struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "%s: out of memory", folder->path);
}

static int listing_read(struct listing *listing, struct error *error)
{
	const struct folder *folder = listing->folder;

	listing->files = calloc(folder->files.count + 1, sizeof(*listing->files));
	if (!listing->files)
		return ranks_no_memory(folder, error);
	for (size_t i = 0; i < folder->files.count; i++) {
		const char *name = folder->files.names[i];

		if (parse_name(name, &listing->files[listing->count]))
			listing->count++;
		else if (format_of_name(name) || format_is_index(name))
			listing->other = name;
	}
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct rank_file *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->part < y->part ? -1 : x->part > y->part;
}

/* Checks that the ranks count from 0 without a hole, and so do the parts of each. It sorts the
 * listing. */
static int listing_check(struct listing *listing, struct error *error)
{
	struct rank_file expected = {.format = listing->files[0].format};
	char name[64];

	format_name(listing->files[0], name, sizeof(name));
	if (listing->other)
		return error_set(error, -EINVAL, "keep what is per rank in a folder of its own",
				 "%s has files per rank (%s), but also %s", listing->folder->path, name,
				 listing->other);
	qsort(listing->files, listing->count, sizeof(*listing->files), by_rank);
	for (size_t i = 0; i < listing->count; i++) {
		struct rank_file file = listing->files[i];

		if (file.rank != expected.rank && expected.part > 0)
			expected = (struct rank_file){expected.rank + 1, 0, expected.format};
		if (file.rank != expected.rank || file.part != expected.part) {
			format_name(expected, name, sizeof(name));
			return error_set(error, -ENOENT, "is the download complete?",
					 "%s has files per rank, but no %s", listing->folder->path, name);
		}
		expected.part++;
	}
	return 0;
}

static int open_one(const struct roots *roots, const struct folder *folder, struct rank_file file,
		    struct source *source, struct error *error)
{
	struct source_rank *rank = &source->ranks[file.rank];
	char name[64], *path;
	int r;

	format_name(file, name, sizeof(name));
	path = source_path(folder->path, name);
	if (!path)
		return ranks_no_memory(folder, error);
	r = source_file_open(roots, path, &source->files[source->file_count], error);
	free(path);
	if (r < 0)
		return r;
	if (file.part == 0)
		rank->file = source->file_count;
	rank->file_count++;
	return source_file_parse(&source->files[source->file_count++], error);
}

static int open_all(const struct roots *roots, const struct listing *listing, struct source *source,
		    struct error *error)
{
	int r = 0;

	source->world = listing->files[listing->count - 1].rank + 1;
	source->ranks = calloc(source->world, sizeof(*source->ranks));
	source->files = calloc(listing->count, sizeof(*source->files));
	if (!source->ranks || !source->files)
		return ranks_no_memory(listing->folder, error);
	for (size_t i = 0; r == 0 && i < listing->count; i++)
		r = open_one(roots, listing->folder, listing->files[i], source, error);
	return r;
}

int ranks_open(const struct roots *roots, const struct folder *folder, struct source *source,
	       struct error *error)
{
	struct listing listing = {.folder = folder};
	int r = listing_read(&listing, error);

	if (r == 0 && listing.count == 0)
		r = -ENOENT;
	else if (r == 0)
		r = listing_check(&listing, error);
	if (r == 0)
		r = open_all(roots, &listing, source, error);
	free(listing.files);
	return r;
}

int ranks_place(struct source *source, struct error *error)
{
	size_t at = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < source->world; i++) {
		struct source_rank *rank = &source->ranks[i];
		const struct source_tensor **sorted = NULL;

		rank->tensor = at;
		for (; at < source->tensor_count && source->tensors[at].file < rank->file + rank->file_count;
		     at++)
			rank->bytes += source->tensors[at].bytes;
		rank->tensor_count = at - rank->tensor;
		r = shards_sort(source, rank->tensor, rank->tensor_count, &sorted, error);
		free(sorted);
	}
	return r;
}
