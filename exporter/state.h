/* /api/state: a snapshot for the status page, as JSON of bounded size. docs/man/gpuwm-exporter.8.scd has the keys. */
#ifndef GPUWM_EXPORTER_STATE_H
#define GPUWM_EXPORTER_STATE_H

#include "snapshot.h"

/* Returns the text, which the caller frees. NULL: out of memory. */
char *state_make(const struct snapshot *snapshot, size_t *ret_bytes);

/* Returns a new array of the `most` items of the array for which `rank` is largest, in their order in
 * the array. NULL: out of memory. */
json_t *state_largest(const json_t *array, size_t most, uint64_t (*rank)(const json_t *item));

#endif
