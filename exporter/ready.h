/* /readyz: whether a version can be attached to. */
#ifndef GPUWM_EXPORTER_READY_H
#define GPUWM_EXPORTER_READY_H

#include "snapshot.h"

#define READY_WHY_BYTES 700

/* Returns whether the version that the reference names (MODEL, MODEL@TAG, MODEL@ALIAS or a version's id)
 * is ready on a device. Sets ret_why to a line about it: where it is, or why it is not ready. */
bool ready_is(const struct snapshot *snapshot, const char *reference, char ret_why[READY_WHY_BYTES]);

#endif
