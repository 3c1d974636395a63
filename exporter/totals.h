/* Sums over whole answers of gpuwmd. The lists of /api/state are bounded, so the page counts nothing in them. The sums name no
 * model and no user: everybody may see them. */
#ifndef GPUWM_EXPORTER_TOTALS_H
#define GPUWM_EXPORTER_TOTALS_H

#include "snapshot.h"

/* Returns a new object; docs/man/gpuwm-exporter.8.scd has its keys. What gpuwmd did not answer is missing. NULL: out of
 * memory. */
json_t *totals_make(const struct snapshot *snapshot);

/* The device whose memory the version's part is. NULL: it has none, since its version lies on files. */
const char *part_device(const json_t *version, const json_t *part);

#endif
