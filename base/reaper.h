/* Objects that others use as long as they like. A thread of the library, the reaper, one for each process, frees an object after its
 * last use. The last user may let go anywhere: under an interpreter's lock, in a stream capture, behind a queued kernel, or in
 * exit. So letting go only counts. */
#ifndef GPUWM_LIB_REAPER_H
#define GPUWM_LIB_REAPER_H

#include "errors.h"

#include <stdbool.h>
#include <stdint.h>

/* Part of such an object. */
struct keep {
	unsigned uses; /* atomic: one of its owner, and one for each other user */
	uint64_t generation; /* of fork: in a child, the count is a copy without a meaning */
	int (*end)(struct keep *keep);
	struct keep *next; /* in the reaper's list */
};

/* Begins with one use, the owner's. The reaper calls `end` after the last use. It returns 0 if it has freed the object, and -EBUSY if
 * the reaper is to call it again later. */
void keep_init(struct keep *keep, int (*end)(struct keep *keep));

/* Adds a use, and starts the reaper if it does not run. Fails with -ECHILD, and with -EAGAIN if the thread can't be made. */
int keep_use(struct keep *keep, struct error *error);

/* Ends a use. After the last one the object belongs to the reaper. Any thread may call it anywhere: it takes no lock, no memory and
 * no time. Does nothing in a forked child. */
void keep_unuse(struct keep *keep);

/* The same for the owner, who may be the only user so far. If the thread can't be made, the object stays until it can. */
void keep_give_up(struct keep *keep);

/* Returns how many uses there are besides the owner's. */
unsigned keep_others(const struct keep *keep);

/* Returns true if there were no other uses. From then on there can be none: the caller frees the object, or puts it back. */
bool keep_claim(struct keep *keep);
void keep_put_back(struct keep *keep);

/* An `end` calls reaper_enter before, and reaper_leave after its calls of the driver. reaper_enter returns false if the program has
 * announced a stream capture: try again later. Once the process has begun to exit, it does not return. The exit waits a moment for
 * calls that have been entered. */
bool reaper_enter(void);
/* Call it in between, after a wait and before memory is freed: it does not return if the exit has begun meanwhile. */
void reaper_go_on(void);
void reaper_leave(void);

/* Returns whether gpuwm_capture_begin was called, and gpuwm_capture_end not yet. */
bool capture_is_told(void);

#endif
