/* The index of a sharded repository (NAME.safetensors.index.json): which file holds which tensor. */
#ifndef GPUWM_LOADER_WEIGHT_MAP_H
#define GPUWM_LOADER_WEIGHT_MAP_H

#include "../../base/errors.h"

#include <stdbool.h>
#include <stddef.h>

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
