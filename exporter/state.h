/* /api/state: a snapshot for the status page, as JSON of bounded size. docs/man/gpuwm-exporter.8.scd has the keys. And sums over whole
 * answers of gpuwmd: the lists of /api/state are bounded, so the page counts nothing in them. The sums name no model and no user: everybody
 * may see them. */
#ifndef GPUWM_EXPORTER_STATE_H
#define GPUWM_EXPORTER_STATE_H

#include "snapshot.h"

/* Returns the text, which the caller frees. NULL: out of memory. */
char *state_make(const struct snapshot *snapshot, size_t *ret_bytes);

/* Returns a new array of the `most` items of the array for which `rank` is largest, in their order in
 * the array. NULL: out of memory. */
json_t *state_largest(const json_t *array, size_t most, uint64_t (*rank)(const json_t *item));

/* Returns a new object; docs/man/gpuwm-exporter.8.scd has its keys. What gpuwmd did not answer is missing. NULL: out of
 * memory. */
json_t *totals_make(const struct snapshot *snapshot);

/* The device whose memory the version's part is. NULL: it has none, since its version lies on files. */
const char *part_device(const json_t *version, const json_t *part);

#endif
