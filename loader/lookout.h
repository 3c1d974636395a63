/* What a loader does for GPUs while it stands by: it looks whether one is lost, and whether a lost one is back. */
#ifndef GPUWM_LOADER_LOOKOUT_H
#define GPUWM_LOADER_LOOKOUT_H

#include "../proto/message.h"

#include <stdint.h>

/* How often the GPUs are asked. NVML answers without a context, so that this costs little; a loss is known that soon. */
#define LOOKOUT_MS 2000

/* From one examination of a lost GPU to the next. Each starts a process that makes a CUDA context. */
#define LOOKOUT_EXAMINE_MS 5000

/* An examination ends itself then: a driver may hang in calls to a GPU that is lost. Contexts take 0.2 s, and 16 s where
 * 64 are made at once. */
#define LOOKOUT_EXAMINE_SECONDS 30

struct lookout;

/* NULL: out of memory. Knows no GPU yet. */
struct lookout *lookout_new(void);
/* Ends an examination that runs. Always NULL; NULL is fine. */
struct lookout *lookout_free(struct lookout *lookout);

/* Takes `devices` of what gpuwmd says: those that it knows, and which of them it holds for lost. */
void lookout_told(struct lookout *lookout, struct fields *f);
/* How long the caller may wait for other things before the next turn; -1: for ever, there is no GPU. */
int64_t lookout_wait_ms(const struct lookout *lookout);
/* Looks, if it is time to. True if there is something that gpuwmd does not know, for lookout_put. */
bool lookout_turn(struct lookout *lookout);
/* Looks now at this device of a failed job. True as above. */
bool lookout_after_failure(struct lookout *lookout, const char *id);
/* Writes `lost` and `back` with what was found since the last call. */
void lookout_put(struct lookout *lookout, struct message_writer *w);

#endif
