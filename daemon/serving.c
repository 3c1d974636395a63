#include "serving.h"

#include "net/listener.h"
#include "base/notify.h"
#include "server.h"
#include "start_lines.h"
#include "restart/keeping.h"
#include "work/tiers/restore.h"

static void on_awake(uv_idle_t *idle)
{
	(void)idle; /* that it is active makes the loop turn without waiting */
}

/* After the loop has looked for events: it watches the listeners by then. */
static void on_turned(uv_check_t *check)
{
	struct server *server = check->data;

	uv_check_stop(check);
	uv_idle_stop(&server->serving_soon);
	notify_ready(server->notify);
}

void serving_init(struct server *server)
{
	uv_idle_init(&server->loop, &server->serving_soon);
	uv_check_init(&server->loop, &server->serving);
	server->serving.data = server;
}

void serving_close(struct server *server)
{
	uv_close((uv_handle_t *)&server->serving_soon, NULL);
	uv_close((uv_handle_t *)&server->serving, NULL);
}

void serving_begin(void *data)
{
	struct server *server = data;
	struct error error;

	for (size_t i = 0; i < LISTENERS; i++) {
		if (server->listeners[i] && listener_start(server->listeners[i], &error) < 0) {
			server_fail(server, &error);
			return;
		}
	}
	start_lines_serving(server);
	restore_begin(&server->work, keeping_found(server->keeping));
	uv_idle_start(&server->serving_soon, on_awake);
	uv_check_start(&server->serving, on_turned);
}
