/* The error of a loop that can't watch a descriptor. */
#ifndef GPUWM_DAEMON_WATCHING_H
#define GPUWM_DAEMON_WATCHING_H

struct error;

/* Sets *error to say that gpuwmd could not watch `what`, for the reason `code`, a negative errno. Returns the error's code.
 * -ENOSPC becomes -ENOMEM: from epoll it means that the kernel has no more watches for this user, not that a device is
 * full. */
int watching_failed(int code, const char *what, struct error *error);

#endif
