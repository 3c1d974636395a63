#include "segment.h"

#include <stdlib.h>
#include <unistd.h>

struct closing {
	uv_work_t work;
	struct held_fd index, *segments;
	uint32_t count;
	struct shared_charge *shared;
	segment_done_fn *done;
	void *data;
};

struct shared_charge *shared_charge_new(struct budget_charge *charge)
{
	struct shared_charge *shared = malloc(sizeof(*shared));

	if (!shared)
		return NULL;
	*shared = (struct shared_charge){.charge = *charge, .uses = 1};
	*charge = (struct budget_charge){0};
	return shared;
}

struct shared_charge *shared_charge_use(struct shared_charge *shared)
{
	if (shared)
		shared->uses++;
	return shared;
}

struct shared_charge *shared_charge_drop(struct shared_charge *shared)
{
	if (shared && --shared->uses == 0) {
		budget_release(&shared->charge);
		free(shared);
	}
	return NULL;
}

static void close_all(struct closing *c)
{
	if (c->index.fd >= 0)
		close(c->index.fd);
	for (uint32_t i = 0; i < c->count; i++) {
		if (c->segments[i].fd >= 0)
			close(c->segments[i].fd);
	}
}

static void finish(struct closing *c)
{
	shared_charge_drop(c->shared);
	if (c->done)
		c->done(c->data);
	free(c->segments);
}

static void on_work(uv_work_t *work)
{
	close_all(work->data);
}

static void on_finished(uv_work_t *work, int status)
{
	struct closing *c = work->data;

	(void)status;
	finish(c);
	free(c);
}

static void start(uv_loop_t *loop, const struct closing *what)
{
	struct closing *c = malloc(sizeof(*c));

	if (c) {
		*c = *what;
		c->work.data = c;
		if (uv_queue_work(loop, &c->work, on_work, on_finished) == 0)
			return;
		free(c);
	}
	/* Out of memory: late is better than never. */
	struct closing now = *what;
	close_all(&now);
	finish(&now);
}

void segment_close(uv_loop_t *loop, struct replica *replica, struct shared_charge *shared,
		   segment_done_fn *done, void *data)
{
	struct closing c = {.index = replica->index,
			    .segments = replica->segments,
			    .count = replica->segments ? replica->segment_count : 0,
			    .shared = shared,
			    .done = done,
			    .data = data};

	replica->index.fd = -1;
	replica->segments = NULL;
	replica->segment_count = 0;
	start(loop, &c);
}

void segment_close_fds(uv_loop_t *loop, struct held_fd index, struct held_fd *segments, uint32_t count)
{
	struct closing c = {.index = index, .segments = segments, .count = count};

	start(loop, &c);
}
