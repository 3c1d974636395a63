/* The library in a forked child. It closes descriptors that keep something alive in another process, as a lease or memory in the
 * making. Every object of the parent refuses calls. */
#ifndef GPUWM_LIB_FORK_H
#define GPUWM_LIB_FORK_H

#include "errors.h"

#include <stdint.h>

/* Part of an object that owns descriptors. */
struct fork_hook {
	void (*in_child)(void *object); /* only async-signal-safe calls, no locks */
	void *object;
	uint64_t generation; /* of the process that made the object */
	struct fork_hook *prev, *next;
};

/* Calls in_child in every forked child from now on. Also notes which process this is. */
void fork_watch(struct fork_hook *hook, void (*in_child)(void *object), void *object);
void fork_unwatch(struct fork_hook *hook);

/* Returns 0 in the process that called fork_watch. Fails with -ECHILD in a child of it. */
int fork_check(const struct fork_hook *hook, struct error *error);

/* Returns how many forks led to this process since the library was loaded. Objects of the parent have a smaller number. */
uint64_t fork_generation(void);

/* A lock of the whole library. A fork holds it, so that the child finds in order what the lock guards: the list of hooks, the table of
 * mapped parts, and descriptors on the way to an object that is watched. Its holder may take it again. */
void fork_lock(void);
void fork_unlock(void);

#endif
