/* Tells the service manager (systemd or gpuwm-keeper) that gpuwmd is ready, alive, reloading or stopping, and one line of its status.
 * Without a service manager these functions do nothing. None of them waits. */
#ifndef GPUWM_DAEMON_NOTIFY_H
#define GPUWM_DAEMON_NOTIFY_H

#include <uv.h>

/* Writes the status of gpuwmd in one line. */
#define NOTIFY_LINE_BYTES 512
typedef void notify_describe_fn(const void *data, char line[NOTIFY_LINE_BYTES]);

struct notify;

/* Returns NULL if there is no memory. */
struct notify *notify_new(uv_loop_t *loop, notify_describe_fn *describe, const void *data);
/* Closes the timers, whose close callbacks free them. Returns NULL. */
struct notify *notify_free(struct notify *notify);

/* Says that gpuwmd is ready. From now on the loop feeds the watchdog, so a loop that hangs does not. */
void notify_ready(struct notify *notify);
/* Say that a reload begins and ends. Before notify_ready they do nothing. */
void notify_reloading(const struct notify *notify);
void notify_reloaded(struct notify *notify);
/* Says that starting or stopping may take so much longer from now on. */
void notify_extend(unsigned seconds);
void notify_stopping(void);
/* The status may have changed: within a second, the service manager gets the new line. */
void notify_changed(struct notify *notify);

#endif
