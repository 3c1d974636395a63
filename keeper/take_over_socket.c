#include "take_over.h"
#include "../service/log.h"
#include "../base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Between two looks whether another keeper listens or has let go of the lock. */
#define LOOK_MS 20
/* One keeper takes over at a time. More wait here. */
#define BACKLOG 4
/* What the kernel calls users that have no number in the keeper's user namespace. */
#define UID_NOBODY 65534

bool stop_is_pending(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT));
}

static int log_refused(const char *path, const char *what, int r)
{
	log_error("--take-over %s: %s: %s", path, what, strerror(-r));
	return r;
}

static int connect_to(const char *path)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (sock < 0)
		return -errno;
	r = packet_connect(sock, path);
	if (r == 0)
		return sock;
	close(sock);
	return r;
}

/* With the lock held. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat stale;
	mode_t mask;
	int sock, r;

	if (lstat(path, &stale) == 0) {
		if (!S_ISSOCK(stale.st_mode))
			return -EEXIST;
		if (stale.st_uid != geteuid()) /* a keeper of that user may begin there at any time */
			return -EPERM;
		if (unlink(path) < 0)
			return -errno;
	} else if (errno != ENOENT) {
		return -errno;
	}
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	strcpy(address.sun_path, path); /* take_over_socket_find has checked its length */
	mask = umask(0177);
	r = bind(sock, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(mask);
	if (r == 0 && listen(sock, BACKLOG) < 0)
		r = -errno;
	if (r == 0)
		return sock;
	close(sock);
	return r;
}

/* One look. Returns 1 with *ret_peer, 0 if the lock is taken, -EAGAIN if neither was possible yet, or -errno. */
static int find_once(int lock, const char *path, int *ret_peer)
{
	int r = connect_to(path);

	if (r >= 0) {
		*ret_peer = r;
		return 1;
	}
	/* EAGAIN: a keeper listens, and several wait in its queue */
	if (r != -ENOENT && r != -ECONNREFUSED)
		return r;
	if (flock(lock, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -errno;
}

static int find_until(int lock, const char *path, int *ret_peer)
{
	int r;

	for (unsigned waited_ms = 0; (r = find_once(lock, path, ret_peer)) == -EAGAIN; waited_ms += LOOK_MS) {
		if (stop_is_pending())
			return -ECANCELED;
		if (waited_ms == 0)
			log_info("another keeper holds %s.lock: gpuwm-keeper waits for its end", path);
		if (waited_ms >= PREDECESSOR_END_MS)
			return log_refused(path, "another keeper holds the lock and does not end; end it",
					   -EBUSY);
		poll(NULL, 0, LOOK_MS);
	}
	if (r < 0)
		return log_refused(
			path, "the keeper there can't be reached; does the folder belong to this user?", r);
	return r;
}

int take_over_socket_find(struct take_over_socket *ret, const char *path, int *ret_peer)
{
	char file[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof(".lock")];
	int lock, r;

	*ret = (struct take_over_socket){-1, -1};
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return log_refused(path, "the path has more than 107 bytes; choose a shorter one",
				   -ENAMETOOLONG);
	snprintf(file, sizeof(file), "%s.lock", path);
	lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return log_refused(path, "the lock can't be opened; the folder must exist and be writable",
				   -errno);
	r = find_until(lock, path, ret_peer);
	if (r == 0) {
		ret->listener = listen_at(path);
		if (ret->listener < 0)
			r = log_refused(path, "the keeper can't listen there", ret->listener);
	}
	if (r != 0)
		close(lock);
	else
		ret->lock = lock;
	return r;
}

int take_over_socket_accept(const struct take_over_socket *sock)
{
	static const char no[] = LINK_NO " only the user of the keeper there and root may take over";
	int peer = accept4(sock->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred who = {.uid = UID_NOBODY};
	socklen_t bytes = sizeof(who);

	if (peer < 0)
		return -1;
	/* A user that the keeper's user namespace does not know has the number of nobody, so nobody is never the keeper's
	 * user. */
	if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
	    (who.uid == 0 || (who.uid == geteuid() && who.uid != UID_NOBODY)))
		return peer;
	log_warning("process %d of user %u wants to take over and is refused: only this user and root may",
		    (int)who.pid, (unsigned)who.uid);
	/* A closed connection would look like a keeper that has ended: the other one would try again at once, for ever. */
	packet_send(peer, no, sizeof(no) - 1, NULL, 0);
	close(peer);
	return -1;
}

void take_over_socket_close(struct take_over_socket *sock)
{
	if (sock->listener >= 0)
		close(sock->listener);
	if (sock->lock >= 0)
		close(sock->lock);
	*sock = (struct take_over_socket){-1, -1};
}
