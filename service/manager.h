/* Messages to the service manager above (systemd, or gpuwm-keeper), without waiting for it. */
#ifndef GPUWM_SERVICE_MANAGER_H
#define GPUWM_SERVICE_MANAGER_H

/* Sends the text to $NOTIFY_SOCKET. sd_notify(3) would wait until the manager reads, for ever if
 * the manager hangs, and the loops of gpuwm must not wait.
 *
 * Returns 0 if the manager was told, or if there is none. Fails with -EAGAIN if its queue is full,
 * or this process has no descriptor left: try again. */
int manager_tell(const char *text);

#endif
