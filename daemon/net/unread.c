#include "unread.h"
#include "../base/hash.h"
#include "net.h"
#include "session.h"
#include "../../proto/wire/packet.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

/* Sessions that are asked at a time whether their peers have read: 0.2 us each. */
#define LOOKED_AT 16

struct unread_user {
	struct unread *unread;
	uid_t uid;
	uint64_t count; /* with leftovers' */
	struct session *first; /* who may have some unread; those that were looked at longest ago come first */
	struct leftover *leftovers;
	UT_hash_handle hh;
};

/* What is left of a session that ended before its peer had read. */
struct leftover {
	struct fair_watch watch;
	struct unread_user *user;
	struct quota_charge charge;
	struct fair_share *share;
	unsigned fds;
	struct leftover *prev, *next;
};

struct unread {
	struct unread_user *users; /* by uid; only those who have some */
	uint64_t leftovers; /* of all users */
};

struct unread *unread_new(void)
{
	return calloc(1, sizeof(struct unread));
}

static struct unread_user *user_find(const struct unread *unread, uid_t uid)
{
	struct unread_user *user;

	HASH_FIND(hh, unread->users, &uid, sizeof(uid), user);
	return user;
}

static struct unread_user *user_get(struct unread *unread, uid_t uid)
{
	struct unread_user *user = user_find(unread, uid);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->unread = unread;
	user->uid = uid;
	HASH_ADD(hh, unread->users, uid, sizeof(uid), user);
	if (user->hh.tbl)
		return user;
	free(user);
	return NULL;
}

static void give_back(struct unread_user *user, unsigned fds)
{
	user->count -= fds;
	if (user->count > 0)
		return;
	HASH_DEL(user->unread->users, user);
	free(user);
}

uint64_t unread_count(const struct unread *unread, unsigned uid)
{
	const struct unread_user *user = user_find(unread, uid);

	return user ? user->count : 0;
}

/* ---- sessions ---- */

static void enlist(struct unread_user *user, struct session *session)
{
	session->unread_of = user;
	DL_APPEND2(user->first, session, prev_unread, next_unread);
}

static void delist(struct session *session)
{
	DL_DELETE2(session->unread_of->first, session, prev_unread, next_unread);
	session->unread_of = NULL;
}

void unread_add(struct session *session, size_t fds)
{
	struct unread_user *user = session->unread_of;

	session->fds_sent += (unsigned)fds;
	if (session->kind != SESSION_WORKER || fds == 0)
		return;
	if (user) {
		user->count += fds;
		return;
	}
	user = user_get(session->net->unread, session->peer.uid);
	if (!user)
		return;
	enlist(user, session);
	user->count += session->fds_sent;
}

void unread_clear(struct session *session)
{
	struct unread_user *user = session->unread_of;
	unsigned fds = session->fds_sent;

	session->fds_sent = 0;
	if (!user)
		return;
	delist(session);
	give_back(user, fds);
}

/* False: all of the user's sessions are clear, and the user is forgotten. */
static bool look_at_oldest(struct unread_user *user)
{
	struct session *session = user->first;
	bool last = !session->next_unread && !user->leftovers;

	if (packet_unread(session->sock)) {
		delist(session);
		enlist(user, session);
		return true;
	}
	unread_clear(session);
	return !last;
}

uint64_t unread_leftovers(const struct unread *unread)
{
	return unread->leftovers;
}

bool unread_has_room(struct session *session, size_t fds)
{
	/* The k-th user who leaves some unread may leave a (k + 1)-th part of all: each has room, and only a dozen and more
	 * users together reach what the kernel takes. */
	const uint64_t most = UNREAD_FDS_ALL_MAX / (HASH_COUNT(session->net->unread->users) + 1);
	struct unread_user *user = user_find(session->net->unread, session->peer.uid);

	if (session->kind != SESSION_WORKER || !user)
		return true;
	for (int i = 0; i < LOOKED_AT && user->first && user->count + fds > most; i++) {
		if (!look_at_oldest(user))
			return true;
	}
	return user->count + fds <= most;
}

/* ---- what is left of sessions ---- */

static void leftover_free(struct leftover *left)
{
	struct unread_user *user = left->user;

	user->unread->leftovers--;
	fair_forget(&left->watch);
	close(left->watch.fd);
	fair_leave(left->share);
	quota_release(&left->charge);
	DL_DELETE(user->leftovers, left);
	give_back(user, left->fds);
	free(left);
}

/* The kernel signals writability when the peer reads, and when it closes, which frees what it had not read. That the
 * peer has shut its end down is no sign: what it did not read stays. */
static void on_read(struct fair_watch *watch, uint32_t events)
{
	(void)events;
	if (!packet_unread(watch->fd))
		leftover_free((struct leftover *)watch); /* its first member */
}

bool unread_take_over(struct session *session)
{
	struct unread_user *user = session->unread_of;
	struct leftover *left = user && packet_unread(session->sock) ? calloc(1, sizeof(*left)) : NULL;

	if (!left) {
		unread_clear(session);
		return false;
	}
	*left = (struct leftover){.watch = {.fd = session->sock, .call = on_read},
				  .user = user,
				  .charge = session->charge,
				  .share = session->share,
				  .fds = session->fds_sent};
	if (fair_watch(left->share, &left->watch, EPOLLOUT | EPOLLET) < 0) {
		free(left);
		unread_clear(session);
		return false;
	}
	session->net->unread->leftovers++;
	delist(session);
	DL_PREPEND(user->leftovers, left);
	session->fds_sent = 0;
	session->charge = (struct quota_charge){0};
	session->share = NULL;
	return true;
}

struct unread *unread_free(struct unread *unread)
{
	struct unread_user *user, *next;

	if (!unread)
		return NULL;
	HASH_ITER(hh, unread->users, user, next)
	{
		for (struct leftover *left = user->leftovers, *after; left; left = after) {
			after = left->next; /* the last one takes the user along */
			leftover_free(left);
		}
	}
	free(unread);
	return NULL;
}

/* ---- sessions that have to wait ---- */

#define CROWDED_RETRY_MS 10 /* a peer that reads at all has read by then */

struct crowded {
	uv_timer_t timer;
	struct session *first; /* a list */
};

static void crowded_on_timer(uv_timer_t *timer)
{
	struct crowded *crowded = timer->data;

	for (struct session *s = crowded->first; s; s = s->next_crowded)
		fair_due(s->share, &s->task);
	if (!crowded->first)
		uv_timer_stop(timer);
}

struct crowded *crowded_new(uv_loop_t *loop)
{
	struct crowded *crowded = calloc(1, sizeof(*crowded));

	if (!crowded)
		return NULL;
	uv_timer_init(loop, &crowded->timer);
	crowded->timer.data = crowded;
	return crowded;
}

static void crowded_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct crowded *crowded_free(struct crowded *crowded)
{
	if (crowded)
		uv_close((uv_handle_t *)&crowded->timer, crowded_on_closed);
	return NULL;
}

void crowded_add(struct crowded *crowded, struct session *session)
{
	if (session->prev_crowded)
		return;
	DL_PREPEND2(crowded->first, session, prev_crowded, next_crowded);
	if (!uv_is_active((uv_handle_t *)&crowded->timer))
		uv_timer_start(&crowded->timer, crowded_on_timer, CROWDED_RETRY_MS, CROWDED_RETRY_MS);
}

void crowded_remove(struct session *session)
{
	if (!session->prev_crowded)
		return;
	DL_DELETE2(session->net->crowded->first, session, prev_crowded, next_crowded);
	session->prev_crowded = NULL;
}
