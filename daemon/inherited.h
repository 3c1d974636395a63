/* What a gpuwmd before this one left in the fd store, sorted by name. Sockets are the listeners'. */
#ifndef GPUWM_DAEMON_INHERITED_H
#define GPUWM_DAEMON_INHERITED_H

#include "../proto/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inherited_fd {
	uint64_t name;
	int fd; /* -1: taken */
};

struct inherited {
	int state; /* -1: none, or taken */
	struct inherited_fd *ours; /* by name; each name once */
	size_t count;
	char **strange; /* names of what is not ours, or is there twice: to be removed */
	int *strange_fds;
	size_t strange_count;
};

/* Reads $LISTEN_FDS, which stays for the listeners. -ENOMEM. */
int inherited_read(struct inherited *ret, struct error *error);
/* Closes what was not taken. */
void inherited_clear(struct inherited *inherited);
bool inherited_have(const struct inherited *inherited, uint64_t name);
/* -1: not there, or taken. */
int inherited_take(struct inherited *inherited, uint64_t name);

#endif
