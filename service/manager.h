/* What the service manager above is told (systemd, or gpuwm-keeper), without waiting for it. */
#ifndef GPUWM_SERVICE_MANAGER_H
#define GPUWM_SERVICE_MANAGER_H

/* Sends the text to $NOTIFY_SOCKET. sd_notify(3) waits until the manager reads, and one that hangs never
 * does: no loop of ours may wait. -EAGAIN: its queue is full (or we have no descriptor left), try again.
 * 0: told, or there is nobody to tell. */
int manager_tell(const char *text);

#endif
