#include "regions.h"

#include "../../base/loop.h"
#include "../../ledger/region.h"
#include "../work.h"

#include <errno.h>
#include <stdlib.h>

/* A process may use hundreds of regions, and each use takes up to 0.4 ms when the process has exited: a pass over 4,096 chunks, the state,
 * the fd store. In one turn of the loop gpuwmd begins deaths for 2 ms only. That is enough for a few, and a request that comes meanwhile
 * hardly notices it. */
#define DEATHS_NS UINT64_C(2000000)

struct region_watch {
	uv_poll_t poll; /* first */
	struct region_user *user;
	region_gone_fn *gone;
	/* Among those who have exited, and whom the region has not been told of. link NULL: it is not among them. */
	struct region_watch *next, **link;
};

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

/* ---- deaths ---- */

static void enqueue(struct work *work, struct region_watch *watch)
{
	watch->next = NULL;
	watch->link = work->deaths_end;
	*watch->link = watch;
	work->deaths_end = &watch->next;
}

static void dequeue(struct work *work, struct region_watch *watch)
{
	if (!watch->link)
		return;
	*watch->link = watch->next;
	if (watch->next)
		watch->next->link = watch->link;
	else
		work->deaths_end = watch->link;
	watch->link = NULL;
}

static void on_deaths(uv_idle_t *idle)
{
	struct work *work = idle->data;
	const uint64_t begun = uv_hrtime();

	while (work->deaths && uv_hrtime() - begun < DEATHS_NS) {
		struct region_watch *watch = work->deaths;

		dequeue(work, watch);
		watch->gone(work, watch->user);
	}
	if (!work->deaths)
		uv_idle_stop(idle);
}

static void on_exit_of(uv_poll_t *poll, int status, int events)
{
	struct work *work = poll->loop->data;

	(void)status;
	(void)events;
	uv_poll_stop(poll);
	enqueue(work, (struct region_watch *)poll);
	uv_idle_start(&work->deaths_idle, on_deaths);
}

void region_watches_init(struct work *work)
{
	work->deaths = NULL;
	work->deaths_end = &work->deaths;
	uv_idle_init(work->loop, &work->deaths_idle);
	work->deaths_idle.data = work;
}

void region_watches_end(struct work *work)
{
	uv_close((uv_handle_t *)&work->deaths_idle, NULL);
}

/* ---- pidfds ---- */

int region_watch(struct work *work, struct region_user *user, region_gone_fn *gone, struct error *error)
{
	struct region_watch *watch = calloc(1, sizeof(*watch));
	int r = watch ? uv_poll_init(work->loop, &watch->poll, user->pidfd) : -ENOMEM;

	if (r < 0) {
		free(watch);
		return watching_failed(r, "a process that uses a region", error);
	}
	watch->user = user;
	watch->gone = gone;
	user->watch = watch;
	uv_poll_start(&watch->poll, UV_READABLE, on_exit_of);
	return 0;
}

void region_unwatch(struct region_user *user)
{
	struct region_watch *watch = user->watch;

	if (!watch)
		return;
	user->watch = NULL;
	dequeue(watch->poll.loop->data, watch);
	uv_close((uv_handle_t *)&watch->poll, on_closed);
}
