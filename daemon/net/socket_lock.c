#include "listener.h"

#include "../../base/clock.h"
#include "../../service/log.h"
#include "../base/notify.h"
#include "../../base/limits.h"
#include "../../proto/wire/message.h"
#include "../../proto/wire/messages.h"
#include "../../proto/wire/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Between two looks whether the lock is free. An answer, or the end of the other's socket, ends a look sooner. */
#define LOOK_MS 20

/* Waiting for whoever has the path. */
struct waiting {
	const char *path;
	uint64_t wait_ms, deadline_ms;
	int sock; /* said hello and waits for the answer; -1: nobody listens, or nobody was asked yet */
	bool logged;
};

static struct waiting waiting_for(const char *path, uint64_t wait_ms)
{
	return (struct waiting){
		.path = path, .wait_ms = wait_ms, .deadline_ms = clock_steady_ms() + wait_ms, .sock = -1};
}

static void waiting_close(struct waiting *w)
{
	if (w->sock >= 0)
		close(w->sock);
	w->sock = -1;
}

static int say_hello(int sock)
{
	struct message_writer w;
	int r;

	message_write_request(&w, 1, &form_hello, &(struct hello_params){PROTOCOL_MIN, PROTOCOL_MAX, "gpuwmd"});
	r = message_finish(&w);
	if (r == 0)
		r = packet_send(sock, w.buffer.data, w.buffer.size, NULL, 0);
	message_writer_clear(&w);
	return r;
}

/* Says hello to whoever listens at the path. -errno of connect. */
static int waiting_ask(struct waiting *w)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (sock < 0)
		return -errno;
	r = packet_connect(sock, w->path);
	if (r < 0) {
		close(sock);
		return r;
	}
	w->sock = sock;
	say_hello(sock); /* where it fails the socket has ended, as the next look sees */
	return 0;
}

static pid_t listener_of(int sock)
{
	struct ucred peer = {0};
	socklen_t bytes = sizeof(peer);

	return sock >= 0 && getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

/* A process that has ended, or is of another PID namespace, has no number here. */
static const char *describe_process(pid_t pid, char text[32])
{
	if (pid <= 0)
		return "another process";
	snprintf(text, 32, "process %d", (int)pid);
	return text;
}

/* True: the other answered hello. What ended without an answer is asked again at the next look. */
static bool answers(struct waiting *w)
{
	struct pollfd ready = {.fd = w->sock, .events = POLLIN}; /* poll skips -1 */
	uint8_t byte;
	ssize_t got;

	if (poll(&ready, 1, LOOK_MS) <= 0)
		return false;
	got = recv(w->sock, &byte, sizeof(byte), MSG_DONTWAIT);
	if (got > 0)
		return true;
	if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
		waiting_close(w);
		poll(NULL, 0, LOOK_MS);
	}
	return false;
}

/* 0: it may be over, look again. -EADDRINUSE: another gpuwmd serves. -EBUSY: gpuwmd waits no longer. */
static int waiting_look(struct waiting *w, pid_t pid, struct error *error)
{
	char text[32];

	if (answers(w))
		return error_set(error, -EADDRINUSE, "stop it, or take another --socket",
				 "another gpuwmd serves %s", w->path);
	if (clock_steady_ms() >= w->deadline_ms)
		return error_set(error, -EBUSY, "end it, or take another --socket",
				 "%s has not let go of %s within %g seconds, and does not answer there",
				 describe_process(pid, text), w->path, (double)w->wait_ms / 1000);
	if (!w->logged) {
		w->logged = true;
		notify_extend(EXTEND_SECONDS);
		log_warning("%s has not let go of %s yet: gpuwmd waits for its end, at most %g seconds",
			    describe_process(pid, text), w->path, (double)w->wait_ms / 1000);
	}
	return 0;
}

/* A record lock: those of flock would pass to a loader between its fork and exec, and bar the next gpuwmd
 * when this one is killed then. */
static int wait_for_lock(int lock, struct waiting *w, struct error *error)
{
	const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	while (fcntl(lock, F_SETLK, &whole) < 0) {
		struct flock held = whole;
		pid_t holder;
		int r;

		if (errno != EACCES && errno != EAGAIN && errno != EINTR)
			return error_set(error, -errno, NULL, "%s.lock could not be locked: %s", w->path,
					 strerror(errno));
		/* Before the holder can end because it is asked. */
		holder = fcntl(lock, F_GETLK, &held) == 0 && held.l_type != F_UNLCK ? held.l_pid : 0;
		if (w->sock < 0)
			waiting_ask(w);
		r = waiting_look(w, holder, error);
		if (r < 0)
			return r;
	}
	return 0;
}

static int no_lock(const char *file, int number, struct error *error)
{
	char detail[128];

	if (number == ENOENT)
		snprintf(detail, sizeof(detail),
			 "gpuwmctl start chooses a folder of this user's; or make the folder, or take another "
			 "--socket");
	else if (number == ENOSPC || number == EDQUOT)
		snprintf(detail, sizeof(detail), "make room there, or take another --socket");
	else
		snprintf(detail, sizeof(detail),
			 "uid %u must be able to write to its folder; or take another --socket",
			 (unsigned)geteuid());
	return error_set(error, -number, detail, "the lock file %s could not be opened: %s", file,
			 strerror(number));
}

int socket_lock_take(const char *path, uint64_t wait_ms, int *ret_lock, struct error *error)
{
	struct waiting w = waiting_for(path, wait_ms);
	char file[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
	int lock, r;

	snprintf(file, sizeof(file), "%s.lock", path);
	lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return no_lock(file, errno, error);
	r = wait_for_lock(lock, &w, error);
	waiting_close(&w);
	if (r < 0)
		close(lock);
	else
		*ret_lock = lock;
	return r;
}

int socket_lock_check_unserved(const char *path, uint64_t wait_ms, struct error *error)
{
	struct waiting w = waiting_for(path, wait_ms);
	int r;

	/* -EAGAIN: a process listens at the path, but its queue of waiting connections is full. */
	while ((r = w.sock < 0 ? waiting_ask(&w) : 0) == 0 || r == -EAGAIN) {
		r = waiting_look(&w, listener_of(w.sock), error);
		if (r < 0)
			break;
	}
	waiting_close(&w);
	if (r == -EPROTOTYPE)
		return error_set(error, -EADDRINUSE, "take another --socket",
				 "%s is the socket of another program", path);
	return r == -EADDRINUSE || r == -EBUSY ? r : 0;
}
