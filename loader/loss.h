/* Whether a GPU is lost, with all that its memory held.
 *
 * gpuwmd has no driver to ask, so its loaders find out, in three ways:
 * - A loader that stands by asks NVML every few seconds (lookout.h). So a loss is known though nobody loads anything.
 * - A job that failed asks its GPUs. An uncorrectable ECC error shows only where the memory is used, which the scrub does
 *   from time to time with all of it.
 * - Each new loader asks again about what gpuwmd knows from earlier ones: a GPU that left the machine, or that was divided
 *   into MIG devices, is missing only for processes that begin later.
 * What a loader can't see for reasons of its own is not lost: a GPU that CUDA_VISIBLE_DEVICES or the device cgroup hides, a
 * driver that is being upgraded. To call it lost would take good memory from all workers, for good. So what CUDA alone does not
 * list counts only if NVML confirms it. Xids are not listened for: which of them end a GPU differs by generation, and NVML and
 * the driver's results say what came of them. Workers' own errors do not count: workers are not trusted. */
#ifndef GPUWM_LOADER_LOSS_H
#define GPUWM_LOADER_LOSS_H

#include "../proto/errors.h"

#include <stdbool.h>

/* Asks NVML, and whether CUDA lists the GPU; makes no context. True: it is lost, *why (-ENODEV) says how. */
bool loss_is_seen(const char *id, struct error *why);
/* The same for a process whose job on the GPU failed: asks the job's context too, or makes one. */
bool loss_is_met(const char *id, struct error *why);
/* Whether a GPU that was lost is of use again: makes a context, writes into new memory and reads it back. For a process
 * that began after the loss, since what the driver told an earlier one no longer holds. Takes as long as the driver likes. Negative: it is not. */
int loss_examine(const char *id, struct error *error);

#endif
