/* The descriptors that the service manager passes: listening sockets, and what a gpuwmd before this one
 * left in the fd store, sorted by name. */
#ifndef GPUWM_DAEMON_INHERITED_H
#define GPUWM_DAEMON_INHERITED_H

#include "../../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sockets of units, by FileDescriptorName=: "worker", "admin"; and those that gpuwmd made itself and
 * gave to the store: "own-worker", "own-admin". */
enum inherited_socket {
	INHERITED_WORKER,
	INHERITED_ADMIN,
	INHERITED_OWN_WORKER,
	INHERITED_OWN_ADMIN,
	INHERITED_SOCKETS,
};
const char *inherited_socket_name(enum inherited_socket which);

struct inherited_fd {
	uint64_t name;
	int fd; /* -1: taken */
};

struct inherited {
	int sockets[INHERITED_SOCKETS]; /* -1: none, or taken */
	int state; /* -1: none, or taken */
	struct inherited_fd *ours; /* by name; each name once */
	size_t count;
	char **strange; /* names that gpuwmd does not know, or that are there twice: the store is to remove them */
	int *strange_fds;
	size_t strange_count;
	int passed; /* how many descriptors, from the first one on */
	char *passed_names; /* $LISTEN_FDNAMES; NULL: it was not set */
};

/* Nothing was passed. */
extern const struct inherited inherited_none;
/* Reads $LISTEN_FDS and the variables beside it, and removes them from the environment. Call it before anything else opens
 * a descriptor, since it would take that descriptor for one of these. -ENOMEM; -EINVAL, -EBADF: the variables are wrong;
 * any other -errno: a call that looks at a descriptor failed. */
int inherited_read(struct inherited *ret, struct error *error);
/* Returns whether an earlier gpuwmd left anything but sockets: descriptors that would be lost or out of reach if no gpuwmd
 * kept them. */
bool inherited_has_versions(const struct inherited *inherited);
/* Sets $LISTEN_FDS and the variables beside it again, and lets an exec keep the descriptors, of which none may have been taken.
 * -ENOMEM; -errno of fcntl. */
int inherited_pass_on(const struct inherited *inherited);
/* Closes the descriptors that nobody has taken. */
void inherited_clear(struct inherited *inherited);
/* Returns the descriptor of this name, or -1 if it is not there or was taken. It still belongs to `inherited`. */
int inherited_look(const struct inherited *inherited, uint64_t name);
/* The same for a socket. */
int inherited_take_socket(struct inherited *inherited, enum inherited_socket which);
/* Returns the descriptor of this name, which is the caller's from then on, or -1 if it is not there or was taken. */
int inherited_take(struct inherited *inherited, uint64_t name);

/* ---- looking at descriptors ----
 * If the kernel fails such a call, these functions repeat it: a new gpuwmd looks at what the last one
 * stored, and would lose a version for good if it took a failed call for an answer. */

/* Calls `look` until it succeeds, but only a few times, and waits in between. Returns what `look` returned last. Every
 * negative errno is a failure but -EINVAL, which is an answer. */
int look_again(int (*look)(int fd, void *data), int fd, void *data);

/* Returns the seals of a memfd. -EINVAL: the descriptor is no memfd; any other -errno: all calls failed, so the descriptor
 * may be one. The function never blocks, also not on a file of a file system that never answers. */
int memfd_seals(int fd);

/* Sets *ret_bytes to the size of a memfd. -errno: all calls failed. Call memfd_seals first: on a file of a file system that
 * never answers, memfd_bytes blocks for ever. */
int memfd_bytes(int fd, uint64_t *ret_bytes);

#endif
