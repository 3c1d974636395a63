/* From a path to a connection that has said hello. */
#include "dial.h"

#include "../../../base/clock.h"
#include "../../../proto/socket_place.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INIT_PID 1

/* Between two attempts while nobody listens. */
#define RETRY_MS 20
/* Of a place in an error that names several: a socket's longest path, and what separates it from the next one. */
#define PLACE_BYTES 112

static int connect_error(int code, const char *path, struct error *error)
{
	char admission[TEXT_BYTES_MAX + 1];
	const char *remedy = NULL;
	const char *what = strerror(-code);

	if (code == -ENOENT || code == -ECONNREFUSED) {
		remedy =
			"is gpuwmd running? gpuwmctl start starts it for this user; GPUWM_SOCKET names its socket if it is elsewhere";
		what = "nobody listens there";
	} else if (code == -EACCES) {
		admission_remedy(path, admission);
		remedy = admission;
	} else if (code == -EPROTOTYPE) {
		remedy = "it is the socket of another program";
	}
	return error_set(error, code, remedy, "connecting to %.512s: %s", path, what);
}

static int socket_connect(const char *path, int *ret_sock, struct error *error)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
	struct error why;

	if (sock < 0)
		return error_set(error, -errno, errno == EMFILE ? "raise RLIMIT_NOFILE" : NULL,
				 "making a socket failed: %s", strerror(errno));
	r = packet_connect(sock, path);
	if (r == 0) {
		*ret_sock = sock;
		return 0;
	}
	if (r == -ENAMETOOLONG && socket_path_check(path, &why) < 0)
		r = error_set(error, -EINVAL, why.detail, "%s", why.message);
	else
		r = connect_error(r, path, error);
	close(sock);
	return r;
}

/* The folder's mode may let another user listen at a path that this user has not named. */
static int check_owner(int sock, const char *path, struct error *error)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return error_set(error, -errno, NULL, "who listens at %.512s can't be told: %s", path,
				 strerror(errno));
	if (peer.uid == geteuid() || peer.uid == 0)
		return 0;
	return error_set(
		error, -EPERM,
		"remove the socket and give its folder the mode 0700; or name the socket of a gpuwmd that you "
		"trust with GPUWM_SOCKET",
		"connecting to %.512s: uid %u listens there, and only uid %u or root may", path,
		(unsigned)peer.uid, (unsigned)geteuid());
}

static int connection_to(const struct socket_place *place, struct connection **ret_connection,
			 struct error *error)
{
	int sock = -1, r = socket_connect(place->path, &sock, error);

	if (r < 0)
		return r;
	if (place->is_users)
		r = check_owner(sock, place->path, error);
	if (r == 0) {
		r = connection_new(sock, ret_connection);
		if (r < 0)
			error_set(error, r, NULL, "out of memory for a connection");
	}
	if (r < 0)
		close(sock);
	return r;
}

int dial_socket(const struct socket_place *place, struct connection **ret_connection, struct error *error)
{
	int r;

	/* No child is made in between: it would keep the socket, and so the leases. */
	fork_lock();
	r = connection_to(place, ret_connection, error);
	fork_unlock();
	return r;
}

int dial_hello(struct connection *connection, const char *name, int64_t wait_ms, struct reply *ret_reply,
	       struct error *error)
{
	struct message_writer w;
	int r;

	message_write_request(&w, request_next_id(), &form_hello,
			      &(struct hello_params){PROTOCOL_MIN, PROTOCOL_MAX, name});
	r = connection_call(connection, &w, wait_ms, ret_reply, error);
	message_writer_clear(&w);
	return r;
}

static bool code_is_absent(int code)
{
	return code == -ENOENT || code == -ECONNREFUSED;
}

/* Whether the place is that of a gpuwmd whose operators' socket is elsewhere: the system's gpuwmd is not meant then. */
static bool place_is_taken(const struct socket_place *place)
{
	struct error unused;
	int sock;

	if (!place->workers || socket_connect(place->workers, &sock, &unused) < 0)
		return false;
	close(sock);
	return true;
}

/* Connects to the first place where somebody listens. */
static int dial_first(const struct dial_target *to, size_t *ret_place, struct connection **ret,
		      struct error *error)
{
	char places[SOCKET_PLACES_MAX * PLACE_BYTES] = "";
	size_t used = 0;
	int r = -ENOENT;

	for (size_t i = 0; i < to->count; i++) {
		r = dial_socket(&to->places[i], ret, error);
		*ret_place = i;
		if (!code_is_absent(r) || place_is_taken(&to->places[i]))
			return r;
	}
	if (to->count <= 1)
		return r;
	/* Says which places were tried. */
	for (size_t i = 0; i < to->count && used < sizeof(places); i++)
		used += (size_t)snprintf(places + used, sizeof(places) - used, "%s%.*s", i > 0 ? ", " : "",
					 PLACE_BYTES - 3, to->places[i].path);
	return error_set(error, error->code, error->detail, "connecting to %s: nobody listens there", places);
}

static const char hangs_remedy[] =
	"it hangs, is stopped or has too much to do: see its log, and gpuwmctl doctor";

/* The kernel names the process that began to listen. After a restart that may be an earlier gpuwmd, whose socket this one got. */
static bool pid_is_there(pid_t pid)
{
	return kill(pid, 0) == 0 || errno == EPERM;
}

/* Says who took the connection and did not answer hello. */
static int tell_silence(const struct connection *connection, const char *path, uint64_t since_ms,
			struct error *error)
{
	struct ucred peer = {0};
	socklen_t bytes = sizeof(peer);
	const int got = getsockopt(connection_fd(connection), SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
	const pid_t pid = got == 0 ? peer.pid : 0; /* 0: it is of another PID namespace */
	const double seconds = (double)(clock_steady_ms() - since_ms) / 1000;

	if (pid == INIT_PID)
		return error_set(
			error, -ETIMEDOUT,
			"systemd holds its socket: systemctl status gpuwmd says why gpuwmd does not run",
			"gpuwmd did not answer at %.512s within %.1f s", path, seconds);
	if (pid > 0 && pid_is_there(pid))
		return error_set(error, -ETIMEDOUT, hangs_remedy,
				 "gpuwmd (pid %d) did not answer at %.512s within %.1f s", (int)pid, path,
				 seconds);
	return error_set(error, -ETIMEDOUT, hangs_remedy, "gpuwmd did not answer at %.512s within %.1f s", path,
			 seconds);
}

static int dial_once(const struct dial_target *to, int64_t deadline, size_t *ret_place, struct connection **ret,
		     struct reply *ret_reply, struct error *error)
{
	const uint64_t began_ms = clock_steady_ms();
	struct connection *connection;
	int r = dial_first(to, ret_place, &connection, error);

	if (r < 0)
		return r;
	r = dial_hello(connection, to->name, clock_left(deadline), ret_reply, error);
	if (r == -ETIMEDOUT)
		tell_silence(connection, to->places[*ret_place].path, began_ms, error);
	if (r < 0)
		connection_free(connection);
	else
		*ret = connection;
	return r;
}

int dial(const struct dial_target *to, size_t *ret_place, struct connection **ret_connection,
	 struct reply *ret_reply, struct error *error)
{
	const bool bounded = to->timeout_ms != 0 || to->wait_ms != 0;
	const int64_t end = clock_deadline(to->timeout_ms ? to->timeout_ms : to->wait_ms);
	int64_t deadline = clock_deadline(to->wait_ms), patience = clock_deadline(CALL_TIMEOUT_MS);
	bool went_away = false;

	if (bounded)
		patience = end;
	for (;;) {
		int r = dial_once(to, bounded ? end : clock_deadline(CALL_TIMEOUT_MS), ret_place,
				  ret_connection, ret_reply, error);
		bool absent = code_is_absent(r) || r == -ECONNRESET;

		/* It was there: the next one is not far. */
		if (r == -ECONNRESET && !went_away && to->restart_ms != 0) {
			deadline = clock_later(deadline, clock_deadline(to->restart_ms));
			went_away = true;
		}
		if (bounded)
			deadline = clock_earlier(deadline, end);
		/* EAGAIN: gpuwmd is there, its queue of new connections is full. */
		if (r == -EAGAIN && clock_left(patience) == 0)
			return error_set(error, -ETIMEDOUT, hangs_remedy,
					 "gpuwmd did not take the connection at %.512s: its queue of new "
					 "connections is full",
					 to->places[*ret_place].path);
		if (absent ? clock_left(deadline) == 0 : r != -EAGAIN)
			return r;
		poll(NULL, 0, RETRY_MS);
	}
}

int64_t dial_again_ms(int64_t restart_ms)
{
	return restart_ms < 0 || restart_ms > INT64_MAX - CALL_TIMEOUT_MS ? -1 : restart_ms + CALL_TIMEOUT_MS;
}
