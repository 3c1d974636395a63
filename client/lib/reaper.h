/* What others use for as long as they like, and what frees it after the last of them: a thread of the library, one
 * for each process. Who lets go last may be anywhere (under an interpreter's lock, in a stream capture, behind a
 * queued kernel, in exit), so letting go counts, and nothing else. */
#ifndef GPUWM_LIB_REAPER_H
#define GPUWM_LIB_REAPER_H

#include "../../proto/errors.h"

#include <stdbool.h>
#include <stdint.h>

/* Part of an object that is used so. */
struct keep {
	unsigned uses; /* atomic: its owner's, and one for each who was given it */
	uint64_t generation; /* of fork: a child's count is a copy that means nothing */
	int (*end)(struct keep *keep);
	struct keep *next; /* the reaper's */
};

/* With one use, the owner's. end: called by the reaper's thread after the last: 0: the object is gone; -EBUSY: it is
 * to be asked again later. */
void keep_init(struct keep *keep, int (*end)(struct keep *keep));

/* One more use; the reaper's thread runs from then on. -ECHILD; -EAGAIN: the thread could not be made. */
int keep_use(struct keep *keep, struct error *error);

/* One use less; after the last the object is the reaper's. Any thread, anywhere: it takes no lock, no memory and no
 * time. Nothing in a forked child. */
void keep_unuse(struct keep *keep);

/* The same for the owner, who may be the only user: where the thread can't be made, the object stays until it can. */
void keep_give_up(struct keep *keep);

/* The uses of others. */
unsigned keep_others(const struct keep *keep);

/* True: there were none, and from now on there can't be any: the caller frees the object, or puts it back. */
bool keep_claim(struct keep *keep);
void keep_put_back(struct keep *keep);

/* Around what an `end` asks of the driver. False: a stream capture was told, try later. It does not return once exit has
 * begun; exit waits for what has been entered, for a moment. */
bool reaper_enter(void);
/* In between, before memory goes that was waited for: the same, if exit has begun meanwhile. */
void reaper_go_on(void);
void reaper_leave(void);

/* Whether gpuwm_capture_begin was called, and gpuwm_capture_end not yet. */
bool capture_is_told(void);

#endif
