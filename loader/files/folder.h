/* The files of a folder that a model can be loaded from, and which of them the loader takes. */
#ifndef GPUWM_LOADER_FOLDER_H
#define GPUWM_LOADER_FOLDER_H

#include "name_list.h"

#include "../../base/errors.h"

#include <stdbool.h>
#include <stddef.h>

struct handed;
struct source_file;

struct folder {
	const char *path; /* path and fd belong to the source file */
	int fd;
	struct name_list
		files; /* sorted: files of formats, indices of shards, and files whose names foreign formats use */
};

/* Lists the folder, without hidden files: those are unfinished downloads of other programs. Returns
 * 0 and sets *ret, for folder_clear. Fails with -errno, and names the folder. */
int folder_list(const struct source_file *file, struct folder *ret, struct error *error);
/* The same of the files that a load was passed. */
int folder_list_handed(const struct handed *handed, struct folder *ret, struct error *error);
/* Frees the list. A zeroed one is fine. */
void folder_clear(struct folder *folder);

/* Chooses the file or index to load. The first format of which the folder has anything counts, and of
 * that, in this order: model.safetensors; model.safetensors.index.json (transformers has the same
 * order); the only index; the only file (diffusers uses names of its own).
 *
 * Returns 0 and sets *ret_name, which belongs to the folder. If model.safetensors and its index are
 * both there, it writes a sentence about that into ret_warning (TEXT_BYTES_MAX + 1 bytes), else "".
 * Fails with -ENOENT if there is none, -ENOTSUP if there is only a file of another format, and
 * -EINVAL if there are several, which the message lists. */
int folder_choose(const struct folder *folder, const char **ret_name, char *ret_warning, struct error *error);

/* In folder_other.c. Sets the error for a folder that has no file of any format: it says what the folder is (a hub
 * repository, a folder of snapshots), or names the folders in it, and says which of them to name.
 * It reads names only, and none outside of the folder. Returns the error's code. */
int folder_explain(const struct folder *folder, struct error *error);

/* ---- indices of shards (weight_map.c) ----
 *
 * The index of a sharded repository (NAME.safetensors.index.json): which file holds which tensor. */

struct source_file;

struct weight_place {
	const char *tensor, *shard; /* a shard is a file in the same folder */
};

struct weight_map {
	/* in the order of the tensors' names; each name is there once */
	struct weight_place *places;
	size_t count; /* at least 1 */
	bool has_total;
	double total; /* metadata.total_size */
	char *texts; /* the places point into this memory */
};

/* Reads and parses the index. Returns 0 and sets *ret, for weight_map_clear.
 *
 * Fails with
 *   -EBADMSG  The JSON is not valid, or has no weight_map, or one without tensors. The message
 *             names the file, the line and the reason.
 *   -ENOTSUP  The file is not JSON at all, or names shards in other folders.
 *   -EFBIG, -EIO, -ENOMEM */
int weight_map_read(const struct source_file *index, struct weight_map *ret, struct error *error);
/* Frees the map. A zeroed one is fine. */
void weight_map_clear(struct weight_map *map);

#endif
