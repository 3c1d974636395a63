/* The kinds of memory that devices have, as far as gpuwmd tells them apart. gpuwmd itself never touches the memory: what a kind
 * does is behind client/lib/memory.h. */
#ifndef GPUWM_DAEMON_MEMORY_KIND_H
#define GPUWM_DAEMON_MEMORY_KIND_H

#include <stdbool.h>

struct memory_kind {
	const char *name; /* in messages */
	unsigned
		budget_percent; /* what may be granted of a device, unless the configuration says more precisely */
	/* Its devices are GPUs: the budget "*" is theirs, a load that names no device goes to the only one, they may be lost, and
	 * a process that works on one has a context there. */
	bool is_gpu;
	bool can_look; /* a segment's descriptor tells its bytes and seals */
};
extern const struct memory_kind memory_host, memory_cuda;

/* NULL: no such kind. */
const struct memory_kind *memory_kind_find(const char *name);

#endif
