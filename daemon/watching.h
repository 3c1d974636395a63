/* What to say where the loop can't watch a descriptor. */
#ifndef GPUWM_DAEMON_WATCHING_H
#define GPUWM_DAEMON_WATCHING_H

struct error;

/* Sets *error: gpuwmd could not watch `what`, for the reason `code`, a negative errno. Returns the error's code: -ENOSPC
 * becomes -ENOMEM, since it says here that the kernel has no more watches for gpuwmd's user, not that a device is full. */
int watching_failed(int code, const char *what, struct error *error);

#endif
