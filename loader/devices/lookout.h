/* A loader that stands by looks whether a GPU is lost, and whether a lost GPU is back. */
#ifndef GPUWM_LOADER_LOOKOUT_H
#define GPUWM_LOADER_LOOKOUT_H

#include "../../proto/wire/messages.h"

#include <stdint.h>

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
