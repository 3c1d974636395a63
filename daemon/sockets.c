#include "sockets.h"

#include "net/listener.h"
#include "restart/inherited.h"
#include "restart/keeping.h"
#include "restart/store.h"
#include "server.h"

static const struct {
	enum session_kind kind;
	enum inherited_socket passed, own;
} sockets[LISTENERS] = {
	{SESSION_WORKER, INHERITED_WORKER, INHERITED_OWN_WORKER},
	{SESSION_ADMIN, INHERITED_ADMIN, INHERITED_OWN_ADMIN},
};

int sockets_open(struct server *server, struct inherited *left, struct error *error)
{
	char path[LISTENER_PATH_BYTES];
	int r = 0;

	for (size_t i = 0; r == 0 && i < LISTENERS; i++) {
		const struct listener_sockets these = {
			.passed = inherited_take_socket(left, sockets[i].passed),
			.kept = inherited_take_socket(left, sockets[i].own),
		};

		r = listener_open(&server->net, sockets[i].kind, &these, &server->listeners[i], error);
		if (r < 0 || sockets[i].kind != SESSION_ADMIN)
			continue;
		/* For the remedies of errors, while looking up the group's name keeps nobody waiting. */
		listener_path(server->listeners[i], path);
		operators_socket_look(&server->clients.operators, path);
	}
	return r;
}

static int keep(struct listener *listener, const char *name, uint64_t confirm_ms, struct error *error)
{
	int own = listener_own_socket(listener), r = 0;

	if (listener_gave_up(listener))
		r = store_remove_now(&name, 1, confirm_ms, error);
	if (r == 0 && own >= 0)
		r = store_put_now(name, own, confirm_ms, error);
	if (r == 0)
		listener_outlives(listener);
	return r;
}

int sockets_keep(struct server *server, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < LISTENERS && keeping_stores(server->keeping); i++)
		r = keep(server->listeners[i], inherited_socket_name(sockets[i].own),
			 server->config->store_confirm_ms, error);
	return r;
}
