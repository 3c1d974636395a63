/* What happens to the library in a forked child: descriptors that hold
 * something in another process (a lease, memory in the making) are closed, and
 * every object of the parent refuses calls. */
#ifndef GPUWM_LIB_FORK_H
#define GPUWM_LIB_FORK_H

#include "../../proto/errors.h"

#include <stdint.h>

/* Part of an object that owns descriptors. */
struct fork_hook {
	void (*in_child)(void *object); /* only async-signal-safe calls, no locks */
	void *object;
	uint64_t generation; /* of the process that made the object */
	struct fork_hook *next, *previous;
};

/* From now on in_child is called in every child. Also notes which process this is. */
void fork_watch(struct fork_hook *hook, void (*in_child)(void *object), void *object);
void fork_unwatch(struct fork_hook *hook);

/* 0 in the process that called fork_watch, -ECHILD in a child of it. */
int fork_check(const struct fork_hook *hook, struct error *error);

/* Counts the forks on the way to this process: objects of the parent carry a smaller number. */
uint64_t fork_generation(void);

/* A lock of the whole library, held across fork so that the child finds what it
 * guards in order: the list of hooks, the table of mappings, and descriptors on
 * the way to an object that is watched. May be taken again by its holder. */
void fork_lock(void);
void fork_unlock(void);

#endif
