#include "server.h"

#include "../service/log.h"
#include "net/listener.h"
#include "restart/inherited.h"
#include "restart/keeping.h"
#include "restart/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	enum session_kind kind;
	enum inherited_socket passed, own;
} sockets[LISTENERS] = {
	{SESSION_WORKER, INHERITED_WORKER, INHERITED_OWN_WORKER},
	{SESSION_ADMIN, INHERITED_ADMIN, INHERITED_OWN_ADMIN},
};

/* Opens one listener, and takes both sockets over. */
static int open_listener(struct server *server, size_t i, const struct listener_sockets *these,
			 struct error *error)
{
	char path[LISTENER_PATH_BYTES];
	int r = listener_open(&server->net, sockets[i].kind, these, &server->listeners[i], error);

	if (r < 0 || sockets[i].kind != SESSION_ADMIN)
		return r;
	/* For the remedies of errors, while looking up the group's name keeps nobody waiting. */
	listener_path(server->listeners[i], path);
	operators_socket_look(&server->clients.operators, path);
	return 0;
}

_Static_assert(sizeof(((struct config_judge *)0)->worker_at) == LISTENER_PATH_BYTES,
	       "listener_path_of fills it");

struct config_judge sockets_judge(const struct inherited *left)
{
	struct config_judge judge = {.worker_passed = left->sockets[INHERITED_WORKER] >= 0,
				     .admin_passed = left->sockets[INHERITED_ADMIN] >= 0};

	/* If there is no such socket, the path stays empty. */
	listener_path_of(left->sockets[judge.worker_passed ? INHERITED_WORKER : INHERITED_OWN_WORKER],
			 judge.worker_at);
	listener_path_of(left->sockets[judge.admin_passed ? INHERITED_ADMIN : INHERITED_OWN_ADMIN],
			 judge.admin_at);
	return judge;
}

/* Sets *ret to a copy of the descriptor, or to -1 if that is -1. */
static int copy(int sock, int *ret, struct error *error)
{
	*ret = sock < 0 ? -1 : fcntl(sock, F_DUPFD_CLOEXEC, 0);
	if (sock < 0 || *ret >= 0)
		return 0;
	return error_set(error, -errno, "see RLIMIT_NOFILE",
			 "gpuwmd could not copy the descriptor of a socket: %s", strerror(errno));
}

/* Copies, so that a start that fails leaves the sockets to the gpuwmd that is locked then. */
static int open_copies(struct server *server, size_t i, const struct inherited *left, struct error *error)
{
	struct listener_sockets copies = {.passed = -1, .kept = -1};
	int r = copy(left->sockets[sockets[i].passed], &copies.passed, error);

	if (r == 0)
		r = copy(left->sockets[sockets[i].own], &copies.kept, error);
	if (r == 0)
		return open_listener(server, i, &copies, error);
	if (copies.passed >= 0)
		close(copies.passed);
	return r;
}

int sockets_open(struct server *server, struct inherited *left, struct error *error)
{
	int r = 0;

	server->judge = sockets_judge(left);
	for (size_t i = 0; r == 0 && i < LISTENERS; i++)
		r = open_copies(server, i, left, error);
	for (int which = 0; r == 0 && which < INHERITED_SOCKETS; which++) {
		int original = inherited_take_socket(left, (enum inherited_socket)which);

		if (original >= 0)
			close(original);
	}
	/* For a reload: the next start finds the sockets where they are now. */
	for (size_t i = 0; r == 0 && i < LISTENERS; i++)
		listener_path(server->listeners[i], sockets[i].kind == SESSION_ADMIN ? server->judge.admin_at
										     : server->judge.worker_at);
	return r;
}

/* Serves a copy where the socket is: its place and its mode are those of the last configuration that could be used. */
static int open_copy(struct server *server, size_t i, int sock, struct error *error)
{
	char *path = sockets[i].kind == SESSION_ADMIN ? server->config->admin_socket : server->config->socket;
	struct listener_sockets these = {.passed = -1, .kept = -1};
	int r = copy(sock, &these.passed, error);

	if (r < 0)
		return r;
	listener_path_of(sock, path);
	return open_listener(server, i, &these, error);
}

int sockets_open_locked(struct server *server, const struct inherited *left, struct error *error)
{
	const struct listener_sockets none = {.passed = -1, .kept = -1};
	int r = 0;

	server->judge = sockets_judge(left);
	for (size_t i = 0; r == 0 && i < LISTENERS; i++) {
		const int passed = left->sockets[sockets[i].passed];
		const int sock = passed >= 0 ? passed : left->sockets[sockets[i].own];

		if (sock >= 0)
			r = open_copy(server, i, sock, error);
		else if (sockets[i].kind == SESSION_ADMIN && open_listener(server, i, &none, error) < 0)
			/* Nobody can ask then why gpuwmd is locked, but all that it holds stays. */
			log_warning(
				"gpuwmd has no socket for operators, since it can't make one: %s (correct the "
				"configuration, then send SIGHUP to process %d)",
				error->message, (int)getpid());
	}
	return r;
}

int sockets_keep(struct server *server, struct error *error)
{
	const uint64_t confirm_ms = server->config->store_confirm_ms;
	int r = 0;

	if (!keeping_stores(server->keeping))
		return 0;
	for (size_t i = 0; r == 0 && i < LISTENERS; i++) {
		struct listener *listener = server->listeners[i];
		const char *name = inherited_socket_name(sockets[i].own);
		const int own = listener_own_socket(listener);

		if (listener_gave_up(listener))
			r = store_remove_now(&name, 1, confirm_ms, error);
		if (r == 0 && own >= 0)
			r = store_put_now(name, own, confirm_ms, error);
		if (r == 0)
			listener_outlives(listener);
	}
	return r;
}
