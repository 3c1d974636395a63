#include "notify.h"

#include "../../base/clock.h"
#include "../../service/manager.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

/* Of the watchdog's time: systemd recommends half of it; a third bears one late turn more. */
#define WATCHDOG_SHARE 3
/* The line is for people. */
#define STATUS_MS 1000

struct notify {
	notify_describe_fn *describe;
	const void *data; /* of describe */
	uv_timer_t watchdog, status;
	unsigned handles;
	bool ready;
	bool ready_due; /* READY=1 is to be told */
	char told[NOTIFY_LINE_BYTES];
};

struct notify *notify_new(uv_loop_t *loop, notify_describe_fn *describe, const void *data)
{
	struct notify *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->describe = describe;
	n->data = data;
	n->handles = 2;
	n->watchdog.data = n->status.data = n;
	uv_timer_init(loop, &n->watchdog);
	uv_timer_init(loop, &n->status);
	uv_unref((uv_handle_t *)&n->watchdog);
	uv_unref((uv_handle_t *)&n->status);
	return n;
}

static void notify_on_closed(uv_handle_t *handle)
{
	struct notify *n = handle->data;

	if (--n->handles == 0)
		free(n);
}

struct notify *notify_free(struct notify *n)
{
	if (n) {
		uv_close((uv_handle_t *)&n->watchdog, notify_on_closed);
		uv_close((uv_handle_t *)&n->status, notify_on_closed);
	}
	return NULL;
}

/* ---- the line ---- */

static void on_status(uv_timer_t *timer)
{
	struct notify *n = timer->data;
	char line[NOTIFY_LINE_BYTES], text[NOTIFY_LINE_BYTES + 32];

	n->describe(n->data, line);
	if (!n->ready_due && strcmp(line, n->told) == 0)
		return;
	snprintf(text, sizeof(text), "%sSTATUS=%s", n->ready_due ? "READY=1\n" : "", line);
	if (manager_tell(text) < 0) {
		uv_timer_start(&n->status, on_status, STATUS_MS, 0);
		return;
	}
	n->ready_due = false;
	memcpy(n->told, line, sizeof(line));
}

void notify_changed(struct notify *n)
{
	if (n->ready && !uv_is_active((uv_handle_t *)&n->status))
		uv_timer_start(&n->status, on_status, STATUS_MS, 0);
}

/* ---- states ---- */

static void on_watchdog(uv_timer_t *timer)
{
	(void)timer;
	manager_tell("WATCHDOG=1"); /* where it is not taken, the next one comes in time */
}

void notify_ready(struct notify *n)
{
	uint64_t every_us = 0;

	n->ready = n->ready_due = true;
	on_status(&n->status);
	if (sd_watchdog_enabled(0, &every_us) > 0 && every_us > 0) {
		uint64_t ms = every_us / 1000 / WATCHDOG_SHARE;

		uv_timer_start(&n->watchdog, on_watchdog, 0, ms > 0 ? ms : 1);
	}
}

void notify_reloading(const struct notify *n)
{
	char text[64];

	if (!n->ready)
		return;
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)clock_steady_ms() * 1000);
	manager_tell(text);
}

void notify_reloaded(struct notify *n)
{
	if (!n->ready)
		return;
	n->ready_due = true;
	on_status(&n->status);
}

void notify_extend(unsigned seconds)
{
	char text[64];

	snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)seconds * 1000000);
	manager_tell(text);
}

void notify_stopping(void)
{
	manager_tell("STOPPING=1");
}
