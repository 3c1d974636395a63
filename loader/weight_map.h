/* The index of a sharded repository (NAME.safetensors.index.json): which file holds which tensor. */
#ifndef GPUWM_LOADER_WEIGHT_MAP_H
#define GPUWM_LOADER_WEIGHT_MAP_H

#include "../proto/errors.h"

#include <stdbool.h>
#include <stddef.h>

struct source_file;

struct weight_place {
	const char *tensor, *shard; /* a shard is a file of the same folder */
};

struct weight_map {
	struct weight_place *places; /* in the order of the tensors' names, each once */
	size_t count; /* at least 1 */
	bool has_total;
	double total; /* metadata.total_size */
	char *texts; /* what the places point into */
};

/* Reads and parses the index. Free *ret with weight_map_clear. -EBADMSG, naming file, line and reason: the JSON is not valid,
 * or has no weight_map, or one without tensors; -ENOTSUP: the file is no JSON at all, or names shards in other folders;
 * -EFBIG; -EIO; -ENOMEM. */
int weight_map_read(const struct source_file *index, struct weight_map *ret, struct error *error);
/* A zeroed one is fine. */
void weight_map_clear(struct weight_map *map);

#endif
