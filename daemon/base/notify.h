/* What the service manager is told (systemd, or gpuwm-keeper; nothing without one): that gpuwmd
 * is ready, alive, stopping, and one line of how it is. Nothing here waits for it. */
#ifndef GPUWM_DAEMON_NOTIFY_H
#define GPUWM_DAEMON_NOTIFY_H

#include <uv.h>

/* Writes how gpuwmd is, in one line. */
#define NOTIFY_LINE_BYTES 512
typedef void notify_describe_fn(const void *data, char line[NOTIFY_LINE_BYTES]);

struct notify;

/* NULL: out of memory. */
struct notify *notify_new(uv_loop_t *loop, notify_describe_fn *describe, const void *data);
/* Its timers go; their memory with their close callbacks. Always NULL. */
struct notify *notify_free(struct notify *notify);

/* READY, and from now on the watchdog is fed, by the loop: a loop that hangs is not fed. */
void notify_ready(struct notify *notify);
/* Nothing before notify_ready, which is still to come then. */
void notify_reloading(const struct notify *notify);
void notify_reloaded(struct notify *notify);
/* Starting or stopping takes longer, up to so much from now. */
void notify_extend(unsigned seconds);
void notify_stopping(void);
/* Something may have changed that the line tells: it is told within a second. */
void notify_changed(struct notify *notify);

#endif
