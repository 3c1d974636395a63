/* The load job: a source becomes a version, on one device or on several. */
#ifndef GPUWM_LOADER_LOAD_H
#define GPUWM_LOADER_LOAD_H

#include "job.h"

/* Opens the source, publishes it on each device through the library, copies,
 * seals, verifies what lies on GPUs, hands it to gpuwmd. Nothing of it is left in this process
 * afterwards. Any error of its steps; -ECANCELED; -ECONNRESET. */
int load_run(const struct job *job, struct work *work, struct error *error);

#endif
