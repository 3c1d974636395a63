/* Whether a GPU is lost, with all that its memory held.
 *
 * gpuwmd loads no driver, so its loaders find out, in three ways:
 * - A loader that stands by asks NVML every few seconds (lookout.c). So gpuwmd learns of a loss
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
#include "../../proto/wire/messages.h"

#include <stdbool.h>
#include <stdint.h>

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

/* ---- looking while nobody loads (lookout.c) ----
 *
 * A loader that stands by looks whether a GPU is lost, and whether a lost GPU is back. */

/* How often the loader asks NVML about the GPUs. NVML needs no context, so asking costs little.
 * gpuwmd learns of a loss within this time. */
#define LOOKOUT_MS 2000

/* From one examination of a lost GPU to the next. Each starts a process that makes a CUDA
 * context. */
#define LOOKOUT_EXAMINE_MS 5000

/* An examination ends itself after this time, since the driver may hang in calls to a lost GPU. A
 * context takes 0.2 s, and 16 s if 64 are made at once. */
#define LOOKOUT_EXAMINE_SECONDS 30

/* more GPUs than gpuwmd's table has */
#define LOOKOUT_DEVICES_MAX 128

struct lookout;

/* Makes a lookout that knows no GPU. Returns NULL if there is no memory. */
struct lookout *lookout_new(void);
/* Frees the lookout, and ends its examination if one runs. lookout may be NULL. Returns NULL. */
struct lookout *lookout_free(struct lookout *lookout);

/* Learns from gpuwmd which devices it knows, and which of them it counts as lost. */
void lookout_told(struct lookout *lookout, const struct device_known *devices, uint32_t count);
/* Returns how long the caller may wait before the next lookout_turn, or -1 (for ever) if there is
 * no GPU. */
int64_t lookout_wait_ms(const struct lookout *lookout);
/* Looks at the GPUs if it is time to. Returns true if it has found something that gpuwmd does not
 * know. The caller then sends what lookout_lost and lookout_back say. */
bool lookout_turn(struct lookout *lookout);
/* Looks at one device at once, because a job on it failed. Returns as lookout_turn does. */
bool lookout_after_failure(struct lookout *lookout, const char *id);
/* Set ret to what the lookout has found since the last lookout_has_told: devices that are lost, and
 * ids of lost ones that can be used again. They return how many. */
uint32_t lookout_lost(const struct lookout *lookout, struct device_found_lost ret[LOOKOUT_DEVICES_MAX]);
uint32_t lookout_back(const struct lookout *lookout, const char *ret[LOOKOUT_DEVICES_MAX]);
/* gpuwmd is being told what was found. */
void lookout_has_told(struct lookout *lookout);

#endif
