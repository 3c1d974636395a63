/* Whether a GPU is lost, with all that its memory held.
 *
 * gpuwmd loads no driver, so its loaders find out, in three ways:
 * - A loader that stands by asks NVML every few seconds (lookout.h). So gpuwmd learns of a loss
 *   also while nobody loads.
 * - A loader whose job failed looks at the job's GPUs. An uncorrectable ECC error shows only when
 *   something reads the memory; the scrub reads all of it from time to time.
 * - Each new loader looks at all GPUs that gpuwmd knows from earlier ones. If a GPU has left the
 *   machine, or was divided into MIG devices, only processes that begin later miss it.
 *
 * A GPU that this loader can't see for another reason is not lost: CUDA_VISIBLE_DEVICES or the
 * device cgroup may hide it, or the driver is being upgraded. If gpuwmd took it for lost, all
 * workers would lose good memory. So a GPU that CUDA does not list is lost only if NVML confirms
 * it.
 *
 * Loaders do not listen for Xids: which Xids end a GPU differs by generation, and NVML and the
 * driver's results show the outcome. Errors of workers do not count, since gpuwmd does not trust
 * workers. */
#ifndef GPUWM_LOADER_LOSS_H
#define GPUWM_LOADER_LOSS_H

#include "../../base/errors.h"

#include <stdbool.h>

/* Returns whether a device can be lost at all: memory of the machine can't. */
bool loss_is_possible(const char *id);
/* Returns whether the GPU is lost, by what NVML says and by whether CUDA lists it. If so, sets *why
 * (-ENODEV), which says how. It makes no context. */
bool loss_is_seen(const char *id, struct error *why);
/* Does the same for a process whose job on the GPU failed. It also uses the job's context, or makes
 * one. */
bool loss_is_met(const char *id, struct error *why);
/* Checks whether a GPU that was lost can be used again: makes a context, writes into new memory and
 * reads it back. Returns 0 if that works, and a negative errno if not; the error says why. Call it
 * in a process that began after the loss, since the driver keeps what it found out when the process
 * began. It may hang in the driver. */
int loss_examine(const char *id, struct error *error);

#endif
