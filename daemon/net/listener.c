#include "listener.h"
#include "../../base/clock.h"
#include "../base/complaint.h"
#include "../base/metrics.h"
#include "net.h"
#include "../base/pace.h"
#include "session.h"
#include "../../service/log.h"
#include "../config/config.h"
#include "../../proto/socket_place.h"
#include "../base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096 /* net.core.somaxconn's default: workers queue while a daemon restarts */
/* Then others have their turn. Connections are taken in the order of their coming, whosever they are, so that a worker
 * waits behind a full backlog: unless a worker's request is awaited, it has most of the time. */
#define ACCEPT_NS UINT64_C(150000)
#define ACCEPT_AWAITED_NS FAIR_QUANTUM_NS
#define ACCEPT_RETRY_MS 1000 /* without even the spare descriptor: those who connect wait so long */

/* Of one user's refused connections so many a second are told why: each word costs 2 us, which others wait for. */
#define REFUSALS_TOLD 1000

/* What is counted of a user. */
enum { PACE_CONNECTS, PACE_TOLD };

struct listener {
	struct net *net;
	enum session_kind kind;
	char path[LISTENER_PATH_BYTES - 1];
	int sock, lock;
	int spare; /* given up to refuse a connection when descriptors have run out */
	bool bound; /* the path is ours to unlink, while the socket there is */
	dev_t device; /* of the socket there */
	ino_t inode;
	bool given_up; /* the fd store has an own socket that is not used any more */
	unsigned handles; /* to close: 0 before it accepts */
	uv_poll_t poll;
	uv_timer_t retry;
	struct message_writer refusal; /* for who connects too often */
	uint64_t refusal_rate; /* that it names; 0: none is written */
};

/* ---- own sockets ---- */

static int listener_remove_stale(const struct listener *l, struct error *error)
{
	int r = socket_file_check(l->path, error);

	if (r <= 0)
		return r;
	r = socket_lock_check_unserved(l->path, PREDECESSOR_END_MS, error);
	return r < 0 ? r : socket_file_remove_stale(l->path, error);
}

static int set_access(const struct listener *l, const char *group, unsigned mode, struct error *error)
{
	gid_t gid = (gid_t)-1; /* leaves the group as it is */
	int r = group[0] ? config_find_group(l->kind == SESSION_ADMIN ? ADMIN_GROUP_KEY : SOCKET_GROUP_KEY,
					     group, &gid, error)
			 : 0;

	if (r < 0)
		return r;
	r = socket_file_set_access(l->path, gid, mode);
	if (r < 0)
		return error_set(error, r, NULL, "%s could not be given the mode %04o%s%s: %s", l->path, mode,
				 group[0] ? " and the group " : "", group, strerror(-r));
	return 0;
}

static int bind_own(struct listener *l, struct error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat made = {0};
	mode_t mask;
	int r;

	memcpy(address.sun_path, l->path, sizeof(l->path));
	l->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->sock < 0)
		return error_set(error, -errno, NULL, "gpuwmd could not make the socket %s: %s", l->path,
				 strerror(errno));
	mask = umask(0177); /* nobody else gets in before its group and mode are set */
	r = bind(l->sock, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(mask);
	if (r < 0)
		return error_set(error, r,
				 "its folder needs room and gpuwmd's right to write; or take another --socket",
				 "gpuwmd could not bind the socket %s: %s", l->path, strerror(-r));
	l->bound = lstat(l->path, &made) == 0;
	l->device = made.st_dev;
	l->inode = made.st_ino;
	return 0;
}

int listener_path_of(int sock, char path[LISTENER_PATH_BYTES])
{
	struct sockaddr_un address = {0};
	socklen_t bytes = sizeof(address);

	path[0] = '\0';
	if (getsockname(sock, (struct sockaddr *)&address, &bytes) < 0)
		return -errno;
	snprintf(path, LISTENER_PATH_BYTES, "%.*s", (int)sizeof(address.sun_path), address.sun_path);
	return 0;
}

/* The socket of the last gpuwmd is of use while its file is there, and where the configuration wants it: 1, 0, or
 * -errno where that can't be told, since giving it up would turn away who waits in it. */
static int socket_is_in_place(const struct listener *l, int kept, struct error *error)
{
	char path[LISTENER_PATH_BYTES];
	struct stat st = {0};
	int r = listener_path_of(kept, path);

	if (r == 0 && strcmp(path, l->path) == 0 && lstat(path, &st) < 0 && errno != ENOENT)
		r = -errno;
	if (r < 0)
		return error_set(error, r, NULL, "gpuwmd could not look at the socket of the last gpuwmd: %s",
				 strerror(-r));
	if (S_ISSOCK(st.st_mode))
		return 1;
	log_warning("the socket of the last gpuwmd, %s, is gone or not wanted there: %s is made anew", path,
		    l->path);
	return 0;
}

static int open_new(struct listener *l, const char *group, unsigned mode, struct error *error)
{
	int r = listener_remove_stale(l, error);

	if (r == 0)
		r = bind_own(l, error);
	if (r == 0)
		r = set_access(l, group, mode, error);
	if (r == 0 && listen(l->sock, BACKLOG) < 0)
		r = error_set(error, -errno, NULL, "%s: %s", l->path, strerror(errno));
	return r;
}

/* Where it fails, the lock file in the folder says why. */
static void make_folder_of(const struct listener *l)
{
	char folder[sizeof(l->path)];
	char *slash;

	snprintf(folder, sizeof(folder), "%s", l->path);
	slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return;
	*slash = '\0';
	mkdir(folder, 0755);
}

/* kept: of the last gpuwmd; -1: none. */
static int open_own(struct listener *l, int kept, const char *group, unsigned mode, struct error *error)
{
	int r;

	make_folder_of(l);
	r = socket_lock_take(l->path, PREDECESSOR_END_MS, &l->lock, error);
	if (r == 0 && kept >= 0)
		r = socket_is_in_place(l, kept, error);
	if (r > 0) {
		l->sock = kept;
		return set_access(l, group, mode, error);
	}
	if (kept >= 0)
		close(kept);
	l->given_up = kept >= 0;
	return r < 0 ? r : open_new(l, group, mode, error);
}

/* ---- accepting ---- */

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_retry(uv_timer_t *timer)
{
	struct listener *l = timer->data;

	if (l->spare < 0)
		l->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	uv_poll_start(&l->poll, UV_READABLE, on_connection);
}

static void count_refused(const struct listener *l, int code)
{
	metrics_count(l->net->metrics, METRIC_CONNECTS_REFUSED, 1);
	metrics_refused(l->net->metrics, refused_connect, code);
}

/* Out of descriptors: the one that was kept takes the connection, to refuse it. False: it is lost. */
static bool refuse_one(struct listener *l)
{
	struct error error;
	struct peer peer;
	int sock;

	if (l->spare >= 0)
		close(l->spare);
	sock = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock >= 0) {
		error_set(&error, -EMFILE, "raise its RLIMIT_NOFILE (ulimit -n, or LimitNOFILE= under systemd)",
			  "gpuwmd has no descriptor left for another connection");
		if (peer_credentials(sock, &peer) == 0)
			complain(l->net->complaints, peer.uid, COMPLAINT_CONNECT,
				 "pid %d, uid %u is refused: %s", (int)peer.pid, (unsigned)peer.uid,
				 error.message);
		count_refused(l, error.code);
		session_turn_away(sock, &error);
	}
	l->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return l->spare >= 0;
}

/* What is told to who connects too often: written once, since a packet of gpuwmd's own words for each would cost as
 * much as the connection. */
static void write_refusal(struct listener *l, uint64_t rate)
{
	struct error error;

	message_writer_clear(&l->refusal);
	message_writer_init(&l->refusal, PACKET_BYTES_MAX);
	error_set(&error, -EAGAIN,
		  "wait for a moment; connects_per_second in [limits] of gpuwmd's configuration changes it",
		  "your uid connects more often than %llu times a second", (unsigned long long)rate);
	message_response_error(&l->refusal, NULL, &error);
	l->refusal_rate = message_finish(&l->refusal) == 0 ? rate : 0;
}

/* Cheaply, since others wait behind: what the peer has sent already is not looked at, so the peer may see the end of
 * the connection before the packet. */
static void refuse_rate(struct listener *l, int sock, const struct peer *peer)
{
	const uint64_t rate = l->net->config->connects_per_second;
	const struct pace_rate told = {.burst = REFUSALS_TOLD, .per_second = REFUSALS_TOLD};

	if (l->refusal_rate != rate)
		write_refusal(l, rate);
	if (l->refusal_rate == rate &&
	    pace_take(l->net->connects, peer->uid, PACE_TOLD, told, clock_steady_ms()))
		packet_send(sock, l->refusal.buffer.data, l->refusal.buffer.size, NULL, 0);
	discard_socket(l->net->discard, sock);
	count_refused(l, -EAGAIN);
	complain(l->net->complaints, peer->uid, COMPLAINT_CONNECT,
		 "a connection of pid %d, uid %u is refused: the user makes more than %llu a second",
		 (int)peer->pid, (unsigned)peer->uid, (unsigned long long)rate);
}

static void listener_take(struct listener *l, int sock)
{
	const struct config *config = l->net->config;
	const struct pace_rate rate = {.burst = quota_alone(&config->quota, QUOTA_SESSIONS) + 1,
				       .per_second = config->connects_per_second};
	struct session *session;
	struct peer peer;
	int r;

	if (l->kind == SESSION_WORKER && peer_credentials(sock, &peer) == 0 &&
	    !pace_take(l->net->connects, peer.uid, PACE_CONNECTS, rate, clock_steady_ms())) {
		refuse_rate(l, sock, &peer);
		return;
	}
	r = session_new(l->net, sock, l->kind, &session);
	if (r < 0)
		count_refused(l, r);
	else
		metrics_count(l->net->metrics, METRIC_CONNECTS, 1);
}

/* False: nobody is there, or nobody can be taken now. */
static bool accept_one(struct listener *l)
{
	int sock = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (sock >= 0) {
		listener_take(l, sock);
		return true;
	}
	if (errno != EMFILE && errno != ENFILE)
		return errno == ECONNABORTED || errno == EINTR;
	if (refuse_one(l))
		return true;
	/* Who connects can be neither taken nor refused: to look again at once would never end. */
	log_warning("gpuwmd has no descriptor left to refuse a connection with; it looks again in %d ms",
		    ACCEPT_RETRY_MS);
	uv_poll_stop(&l->poll);
	uv_timer_start(&l->retry, on_retry, ACCEPT_RETRY_MS, 0);
	return false;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;
	uint64_t end = clock_steady_ns() + (fair_is_awaited(l->net->fair) ? ACCEPT_AWAITED_NS : ACCEPT_NS);

	(void)events;
	while (status == 0 && accept_one(l) && clock_steady_ns() < end)
		;
}

static struct listener *listener_new(struct net *net, enum session_kind kind, const char *path,
				     struct error *error)
{
	struct listener *l;

	if (socket_path_check(path, error) < 0)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l) {
		error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
		return NULL;
	}
	message_writer_init(&l->refusal, PACKET_BYTES_MAX);
	l->net = net;
	l->kind = kind;
	l->sock = l->lock = l->spare = -1;
	memcpy(l->path, path, strlen(path));
	return l;
}

static int open_one(struct listener *l, const struct listener_sockets *left, struct error *error)
{
	const struct config *config = l->net->config;
	bool admin = l->kind == SESSION_ADMIN;
	char path[LISTENER_PATH_BYTES];

	l->sock = left->passed;
	if (l->sock < 0)
		return open_own(l, left->kept, admin ? config->admin_group : config->group,
				admin ? config->admin_mode : config->socket_mode, error);
	if (left->kept >= 0)
		close(left->kept);
	l->given_up = left->kept >= 0;
	/* Its unit keeps it where it is, whatever the configuration says. */
	if (listener_path_of(l->sock, path) == 0 && strcmp(path, l->path) != 0)
		log_warning(
			"the socket that was passed to gpuwmd is served, %s, not %s: to move it, change its "
			"socket unit",
			path, l->path);
	return 0;
}

static void close_both(const struct listener_sockets *left)
{
	if (left->passed >= 0)
		close(left->passed);
	if (left->kept >= 0)
		close(left->kept);
}

int listener_open(struct net *net, enum session_kind kind, const struct listener_sockets *left,
		  struct listener **ret, struct error *error)
{
	const struct config *config = net->config;
	const char *path = kind == SESSION_ADMIN ? config->admin_socket : config->socket;
	struct listener *l = listener_new(net, kind, path, error);
	int r;

	if (!l) {
		close_both(left);
		return error->code;
	}
	l->spare = open("/dev/null", O_RDONLY | O_CLOEXEC); /* later may be too late for it */
	if (l->spare < 0) {
		r = error_set(error, -errno,
			      "raise its RLIMIT_NOFILE (ulimit -n, or LimitNOFILE= under systemd)",
			      "gpuwmd can't open /dev/null to have a descriptor to spare for %s: %s", l->path,
			      strerror(errno));
		close_both(left);
	} else {
		r = open_one(l, left, error);
	}
	if (r < 0)
		listener_close(l);
	else
		*ret = l;
	return r;
}

void listener_path(const struct listener *l, char path[LISTENER_PATH_BYTES])
{
	listener_path_of(l->sock, path);
}

int listener_own_socket(const struct listener *l)
{
	return l->bound ? l->sock : -1;
}

bool listener_gave_up(const struct listener *l)
{
	return l->given_up;
}

void listener_outlives(struct listener *l)
{
	l->bound = false;
}

int listener_start(struct listener *l, struct error *error)
{
	int r = uv_poll_init(l->net->loop, &l->poll, l->sock);

	if (r < 0)
		return watching_failed(r, l->path, error);
	uv_timer_init(l->net->loop, &l->retry);
	l->handles = 2;
	l->poll.data = l->retry.data = l;
	r = uv_poll_start(&l->poll, UV_READABLE, on_connection);
	return r < 0 ? watching_failed(r, l->path, error) : 0;
}

void listener_stop(struct listener *l)
{
	if (l->handles == 0)
		return;
	uv_poll_stop(&l->poll);
	uv_timer_stop(&l->retry);
}

static void listener_free(struct listener *l)
{
	message_writer_clear(&l->refusal);
	free(l);
}

static void listener_on_closed(uv_handle_t *handle)
{
	struct listener *l = handle->data;

	if (--l->handles == 0)
		listener_free(l);
}

struct listener *listener_close(struct listener *l)
{
	struct stat at_path;

	if (!l)
		return NULL;
	if (l->handles > 0) {
		uv_close((uv_handle_t *)&l->poll, listener_on_closed);
		uv_close((uv_handle_t *)&l->retry, listener_on_closed);
	}
	if (l->bound && lstat(l->path, &at_path) == 0 && at_path.st_dev == l->device &&
	    at_path.st_ino == l->inode)
		unlink(l->path);
	if (l->sock >= 0)
		close(l->sock);
	if (l->spare >= 0)
		close(l->spare);
	if (l->lock >= 0)
		close(l->lock);
	if (l->handles == 0)
		listener_free(l);
	return NULL;
}
