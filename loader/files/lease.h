/* Read leases: how the loader learns that somebody opens a file for writing while it reads.
 *
 * Whoever has a file mapped can write into it, and change none of its times. So a look at the times does not find every
 * change. A lease does: the kernel grants none while anybody has the file open or mapped for writing, and takes it back
 * when somebody opens or truncates the file. That process then waits until the loader gives the lease up, and for
 * /proc/sys/fs/lease-break-time (45 s) at most.
 *
 * Only the file's owner and whoever has CAP_LEASE get a lease, and not every file system gives one. */
#ifndef GPUWM_LOADER_LEASE_H
#define GPUWM_LOADER_LEASE_H

#include "../../base/errors.h"

#include <stdbool.h>

struct file_lease {
	bool held;
	/* What the lease does not tell of, or why there is no lease; a constant text. NULL: it tells of everybody who may
	 * write. */
	const char *unseen;
};

/* Takes a lease on a file that is open for reading. The open file must be this process's own: a lease belongs to it, and
 * outlives this process if others have it too.
 *
 * Returns 0 and sets *ret, for lease_give_back before the file is closed. If there is no lease to be had, ret->unseen says
 * why. Fails with -EBUSY if somebody has the file open or mapped for writing; `path` is for the message. */
int lease_take(int fd, const char *path, struct file_lease *ret, struct error *error);
/* Returns whether nobody has opened the file for writing since lease_take. True also if there is no lease. */
bool lease_holds(const struct file_lease *lease, int fd);
void lease_give_back(struct file_lease *lease, int fd);

#endif
