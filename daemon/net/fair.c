#include "fair.h"
#include "../../base/clock.h"
#include "../base/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

/* Events that one epoll_wait brings: few, since they are one turn's at most. */
#define BATCH 16
/* Another user's next request comes within this time, or that user is not busy. */
#define COMPANY_NS UINT64_C(2000000)
/* A worker that asks one thing after the other asks the next one within this time. */
#define AWAITED_NS UINT64_C(200000)
/* The loop looks for events without waiting while a share rests, so it is bounded. */
#define REST_MAX_NS UINT64_C(1000000)

struct fair_share {
	struct fair *fair;
	uid_t uid;
	uint64_t quantum_ns;
	struct user_times *times;
	unsigned members; /* fair_leave is due of */
	int epoll;
	uv_poll_t poll;
	/* What the kernel reported and nobody has looked at yet; a forgotten watch is NULL there. */
	struct epoll_event batch[BATCH];
	int batch_at, batch_count;
	struct fair_task *tasks;
	bool task_next; /* tasks and descriptors take turns */
	uint64_t rests_until_ns; /* it took longer than its turn */
	struct queue *queue; /* that it is in; NULL: it has nothing to do */
	uint64_t turns_before; /* fair.turns when it got into the queue */
	bool served; /* now */
	struct fair_share *prev_queued, *next_queued;
	bool hashed; /* one uid's own */
	UT_hash_handle hh;
};

struct queue {
	struct fair_share *first;
	uint64_t count;
};

struct fair {
	uv_loop_t *loop;
	struct metrics *metrics;
	void (*after)(void *data);
	void *data;
	struct fair_share *first,
		*rest; /* operators and loaders; the users beyond FAIR_SHARES_MAX; NULL: nobody */
	struct fair_share *shares; /* by uid */
	struct queue fresh, busy; /* that have something to do: since a moment, since their last turn */
	struct queue operators; /* `first` alone */
	uint64_t queued_count;
	uint64_t turns; /* of all shares so far */
	struct fair_share *last; /* that was served, perhaps freed since; NULL: none was */
	uint64_t last_ns, other_ns; /* when it was; when one before it was */
	uint64_t fresh_ns; /* when one was that had been idle before */
	uv_check_t turn;
	uv_idle_t awake; /* the loop does not sleep while shares are queued */
	unsigned handles;
};

/* ---- the queue ---- */

static void on_awake(uv_idle_t *idle)
{
	(void)idle; /* that it is active makes the loop look for events without waiting */
}

static void enqueue(struct fair_share *share, struct queue *queue)
{
	struct fair *fair = share->fair;

	if (share->queue)
		return;
	share->queue = queue;
	share->turns_before = fair->turns;
	DL_APPEND2(queue->first, share, prev_queued, next_queued);
	queue->count++;
	if (fair->queued_count++ == 0)
		uv_idle_start(&fair->awake, on_awake);
}

static void dequeue(struct fair_share *share)
{
	struct fair *fair = share->fair;
	struct queue *queue = share->queue;

	DL_DELETE2(queue->first, share, prev_queued, next_queued);
	queue->count--;
	share->queue = NULL;
	if (--fair->queued_count == 0)
		uv_idle_stop(&fair->awake);
}

/* It has something to do. */
static void fair_wake(struct fair_share *share)
{
	struct fair *fair = share->fair;

	if (share->queue || share->served)
		return;
	enqueue(share, share == fair->first    ? &fair->operators
		       : share->rests_until_ns ? &fair->busy
					       : &fair->fresh);
}

/* ---- one share's turn ---- */

static bool do_task(struct fair_share *share)
{
	struct fair_task *task = share->tasks;

	if (!task)
		return false;
	fair_undue(task);
	if (task->call(task))
		fair_due(share, task);
	return true;
}

static bool handle_event(struct fair_share *share)
{
	struct fair_watch *watch = NULL;
	uint32_t events = 0;

	while (!watch) {
		if (share->batch_at == share->batch_count) {
			share->batch_at = 0;
			share->batch_count = epoll_wait(share->epoll, share->batch, BATCH, 0);
			if (share->batch_count <= 0) {
				share->batch_count = 0;
				return false;
			}
		}
		watch = share->batch[share->batch_at].data.ptr;
		events = share->batch[share->batch_at++].events;
	}
	watch->call(watch, events);
	return true;
}

/* False: there was nothing to do. */
static bool do_one(struct fair_share *share)
{
	share->task_next = !share->task_next;
	return share->task_next ? do_task(share) || handle_event(share) : handle_event(share) || do_task(share);
}

/* A request can't be interrupted. A share whose turn took longer than it should rests for as long, so that it never
 * has more of the time than another share that comes and goes. */
static void rest(struct fair_share *share, uint64_t took_ns, uint64_t now_ns)
{
	uint64_t above = took_ns > share->quantum_ns ? took_ns - share->quantum_ns : 0;

	share->rests_until_ns = above > 0 ? now_ns + (above < REST_MAX_NS ? above : REST_MAX_NS) : 0;
}

/* It rests only while another share was served a moment ago, and may come again. */
static bool rests(struct fair_share *share)
{
	const struct fair *fair = share->fair;
	uint64_t other_ns = share == fair->last ? fair->other_ns : fair->last_ns, now;

	if (share->rests_until_ns == 0)
		return false;
	now = clock_steady_ns();
	if (now < share->rests_until_ns && now - other_ns < COMPANY_NS)
		return true;
	share->rests_until_ns = 0;
	return false;
}

/* Until its time is used up. */
static void fair_serve(struct fair_share *share)
{
	struct user_times *times = share->times;
	struct fair *fair = share->fair;
	uint64_t begin = clock_steady_ns(), now = begin;
	bool more = true;

	dequeue(share);
	share->served = true;
	share->members++; /* it outlives its last member's leaving here */
	while (now - begin < share->quantum_ns && (more = do_one(share))) {
		fair->after(fair->data);
		now = clock_steady_ns();
	}
	rest(share, now - begin, now);
	if (share != fair->last)
		fair->other_ns = fair->last_ns;
	fair->last = share;
	fair->last_ns = now;
	times->turns++;
	times->busy_ns += now - begin;
	times->waited += fair->turns > share->turns_before;
	fair->turns++;
	share->served = false;
	if (more)
		enqueue(share, share == fair->first ? &fair->operators : &fair->busy);
	fair_leave(share);
}

/* Each share that is there now, once: what becomes due meanwhile is for the next turn. */
static void fair_serve_all(struct queue *queue)
{
	for (uint64_t count = queue->count; count > 0 && queue->first; count--)
		fair_serve(queue->first);
}

static void on_turn(uv_check_t *check)
{
	struct fair *fair = check->data;
	uint64_t busy = fair->busy.count;

	fair_serve_all(&fair->operators);
	if (fair->fresh.first)
		fair->fresh_ns = clock_steady_ns();
	fair_serve_all(&fair->fresh);
	for (; busy > 0 && fair->busy.first; busy--) {
		struct fair_share *share = fair->busy.first;
		const uint64_t turns_before = share->turns_before;

		if (!rests(share)) {
			fair_serve(share);
			continue;
		}
		dequeue(share); /* behind those that are busy too */
		enqueue(share, &fair->busy);
		share->turns_before = turns_before; /* it has waited since it got into the queue first */
	}
}

bool fair_is_awaited(const struct fair *fair)
{
	return clock_steady_ns() - fair->fresh_ns < AWAITED_NS;
}

/* ---- shares ---- */

static void on_readable(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	fair_wake(poll->data);
}

static struct fair_share *share_new(struct fair *fair, uint64_t quantum_ns, struct user_times *times)
{
	struct fair_share *share = calloc(1, sizeof(*share));

	if (!share)
		return NULL;
	share->fair = fair;
	share->quantum_ns = quantum_ns;
	share->times = times;
	share->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (share->epoll < 0 || uv_poll_init(fair->loop, &share->poll, share->epoll) < 0) {
		if (share->epoll >= 0)
			close(share->epoll);
		free(share);
		return NULL;
	}
	share->poll.data = share;
	uv_poll_start(&share->poll, UV_READABLE, on_readable);
	return share;
}

static void on_share_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void share_free(struct fair_share *share)
{
	struct fair *fair = share->fair;

	if (share->queue)
		dequeue(share);
	if (share->hashed)
		HASH_DEL(fair->shares, share);
	if (share == fair->rest)
		fair->rest = NULL;
	uv_close((uv_handle_t *)&share->poll, on_share_closed);
	close(share->epoll);
}

static struct fair_share *join(struct fair_share *share)
{
	if (share)
		share->members++;
	return share;
}

static struct fair_share *share_of(struct fair *fair, uid_t uid)
{
	struct fair_share *share;

	HASH_FIND(hh, fair->shares, &uid, sizeof(uid), share);
	if (share)
		return share;
	if (HASH_COUNT(fair->shares) >= FAIR_SHARES_MAX) {
		if (!fair->rest)
			fair->rest = share_new(fair, FAIR_QUANTUM_NS, &fair->metrics->rest);
		return fair->rest;
	}
	share = share_new(fair, FAIR_QUANTUM_NS, metrics_user(fair->metrics, uid));
	if (!share)
		return NULL;
	share->uid = uid;
	HASH_ADD(hh, fair->shares, uid, sizeof(uid), share);
	share->hashed = share->hh.tbl != NULL;
	if (share->hashed)
		return share;
	share_free(share);
	return NULL;
}

struct fair_share *fair_join(struct fair *fair, uid_t uid)
{
	return join(share_of(fair, uid));
}

struct fair_share *fair_join_first(struct fair *fair)
{
	return join(fair->first);
}

void fair_leave(struct fair_share *share)
{
	if (share && --share->members == 0)
		share_free(share);
}

/* ---- watches and tasks ---- */

int fair_watch(struct fair_share *share, struct fair_watch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	if (watch->share && watch->events == events)
		return 0;
	if (epoll_ctl(share->epoll, watch->share ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->fd, &event) < 0)
		return -errno;
	watch->share = share;
	watch->events = events;
	return 0;
}

void fair_forget(struct fair_watch *watch)
{
	struct fair_share *share = watch->share;

	if (!share)
		return;
	epoll_ctl(share->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
	for (int i = share->batch_at; i < share->batch_count; i++) {
		if (share->batch[i].data.ptr == watch)
			share->batch[i].data.ptr = NULL;
	}
	watch->share = NULL;
}

void fair_due(struct fair_share *share, struct fair_task *task)
{
	if (task->share)
		return;
	task->share = share;
	DL_APPEND(share->tasks, task);
	fair_wake(share);
}

void fair_undue(struct fair_task *task)
{
	struct fair_share *share = task->share;

	if (!share)
		return;
	DL_DELETE(share->tasks, task);
	task->share = NULL;
}

/* ---- all of them ---- */

struct fair *fair_new(uv_loop_t *loop, struct metrics *metrics, void (*after)(void *data), void *data)
{
	struct fair *fair = calloc(1, sizeof(*fair));

	if (!fair)
		return NULL;
	*fair = (struct fair){.loop = loop, .metrics = metrics, .after = after, .data = data};
	fair->first = join(share_new(fair, FAIR_QUANTUM_FIRST_NS, &metrics->operators));
	if (!fair->first) {
		free(fair);
		return NULL;
	}
	uv_check_init(loop, &fair->turn);
	uv_idle_init(loop, &fair->awake);
	fair->handles = 2;
	fair->turn.data = fair->awake.data = fair;
	uv_check_start(&fair->turn, on_turn);
	uv_unref((uv_handle_t *)&fair->turn);
	uv_unref((uv_handle_t *)&fair->awake);
	return fair;
}

static void fair_on_closed(uv_handle_t *handle)
{
	struct fair *fair = handle->data;

	if (--fair->handles == 0)
		free(fair);
}

struct fair *fair_free(struct fair *fair)
{
	if (!fair)
		return NULL;
	fair_leave(fair->first);
	uv_close((uv_handle_t *)&fair->turn, fair_on_closed);
	uv_close((uv_handle_t *)&fair->awake, fair_on_closed);
	return NULL;
}
