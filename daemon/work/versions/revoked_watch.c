/* Processes whose sessions have ended and that may still map what was revoked: their pidfds tell when they are gone. */
#include "revoked_internal.h"
#include "../../base/complaint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

/* All sessions of a process that have ended share one. */
struct revoked_watch {
	struct work *work;
	pid_t pid; /* 0: of another PID namespace, shared with no session */
	uid_t uid;
	int pidfd;
	uv_poll_t poll;
	struct revoked_holder *holders; /* a list */
	struct revoked_watch *prev, *next;
};

static bool is_gone(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* While both processes are alive nobody else in gpuwmd's PID namespace has the number. */
static struct revoked_watch *revoked_watch_find(const struct revoked_table *table, const struct peer *peer)
{
	struct revoked_watch *watch = table->watches;

	while (watch &&
	       (watch->pid <= 0 || watch->pid != peer->pid || watch->uid != peer->uid || is_gone(watch->pidfd)))
		watch = watch->next;
	return watch;
}

static uint64_t revoked_watch_count(const struct revoked_table *table, uid_t uid)
{
	uint64_t count = 0;

	for (const struct revoked_watch *watch = table->watches; watch; watch = watch->next)
		count += watch->uid == uid;
	return count;
}

/* Of processes, whoever began them: operators' are among them. */
static const struct share_table watches = {.all = REVOKED_GONE_MAX,
					   .most = REVOKED_GONE_PER_UID_MAX,
					   .noun = "processes whose connections have ended"};

static void unwatched(struct work *work, const struct peer *peer, const char *why)
{
	complain(work->net->complaints, peer->uid, COMPLAINT_UNWATCHED,
		 "pid %d (%s, uid %u) can't be watched: %s; memory that it may map is counted as given back",
		 (int)peer->pid, peer->command, (unsigned)peer->uid, why);
}

static bool has_room(struct work *work, const struct peer *peer)
{
	const struct revoked_table *table = work->revoked;
	const uint64_t own = revoked_watch_count(table, peer->uid);
	const struct share_held held = {.own = own, .others = table->watch_count - own};
	struct error why;

	if (share_check(&watches, &held, peer->uid, 1, &why) == 0)
		return true;
	unwatched(work, peer, why.message);
	return false;
}

static void on_watch_closed(uv_handle_t *handle)
{
	struct revoked_watch *watch = handle->data;

	close(watch->pidfd);
	free(watch);
}

/* The last holder ends the watch. */
static void on_exit_of(uv_poll_t *poll, int status, int events)
{
	struct revoked_holder *holder = ((struct revoked_watch *)poll->data)->holders, *next;

	(void)status;
	(void)events;
	for (; holder; holder = next) {
		next = holder->next_of_watch;
		revoked_holder_end_all(holder);
	}
}

/* NULL: why not is logged. */
static struct revoked_watch *watch_new(struct work *work, const struct peer *peer)
{
	struct revoked_table *table = work->revoked;
	struct revoked_watch *watch = has_room(work, peer) ? calloc(1, sizeof(*watch)) : NULL;

	if (!watch)
		return NULL;
	watch->work = work;
	watch->pid = peer->pid;
	watch->uid = peer->uid;
	watch->pidfd = fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 3);
	if (watch->pidfd < 0 || uv_poll_init(work->loop, &watch->poll, watch->pidfd) < 0) {
		unwatched(work, peer, strerror(errno));
		if (watch->pidfd >= 0)
			close(watch->pidfd);
		free(watch);
		return NULL;
	}
	watch->poll.data = watch;
	DL_PREPEND(table->watches, watch);
	table->watch_count++;
	uv_poll_start(&watch->poll, UV_READABLE, on_exit_of);
	return watch;
}

bool revoked_watch(struct revoked_holder *holder, const struct peer *peer)
{
	struct revoked_watch *watch;

	if (peer->pidfd < 0 || is_gone(peer->pidfd))
		return false;
	watch = revoked_watch_find(holder->work->revoked, peer);
	if (!watch)
		watch = watch_new(holder->work, peer);
	if (!watch)
		return false;
	holder->watch = watch;
	DL_PREPEND2(watch->holders, holder, prev_of_watch, next_of_watch);
	return true;
}

void revoked_unwatch(struct revoked_holder *holder)
{
	struct revoked_watch *watch = holder->watch;

	if (!watch)
		return;
	DL_DELETE2(watch->holders, holder, prev_of_watch, next_of_watch);
	holder->watch = NULL;
	if (watch->holders)
		return;
	DL_DELETE(watch->work->revoked->watches, watch);
	watch->work->revoked->watch_count--;
	uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
}
