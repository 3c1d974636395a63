/* Two checkpoints that differ in one tensor: m@v1, and m@v2, which can share all but one segment with it. */
#ifndef GPUWM_TESTS_ALIKE_H
#define GPUWM_TESTS_ALIKE_H

#include "region_raw.h"

/* Each large tensor of LARGE fills a segment of this size; what is small has one more. */
#define ALIKE_SEGMENT MB(4)
#define ALIKE_SEGMENTS 17
#define ALIKE_CHANGED "layer.005.weight"

/* Writes LARGE(1), but for one byte of ALIKE_CHANGED if `changed`. */
const char *alike_checkpoint(struct gpuwmd *d, const char *name, bool changed);
/* Loads both, the second one with the segments of the first. */
void alike_load(struct gpuwmd *d);
/* Attaches and compares: every tensor but ALIKE_CHANGED is that of LARGE(1), and ALIKE_CHANGED is unless the version is m@v2. */
void alike_reads(const char *ref);

/* What gpuwmd accounts for. */
struct alike_figures {
	uint64_t bytes, segments, shared, device, host;
};
struct alike_figures alike_figures_of(struct gpuwmd *d);
bool alike_figures_are(struct gpuwmd *d, const struct alike_figures *figures);
#define ALIKE_SETTLES(d, figures) cr_assert(EVENTUALLY(SOON_MS, alike_figures_are(d, figures)))

#endif
