#include "closing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct closing {
	uv_work_t work;
	struct segment_hold *segments; /* of a part, freed afterwards */
	uint32_t segment_count;
	struct shared_charge *shared;
	closing_done_fn *done;
	void *data;
	const int *fds;
	size_t fd_count;
	int copied[];
};

static void close_all(const struct closing *c)
{
	for (size_t i = 0; i < c->fd_count; i++) {
		if (c->fds[i] >= 0)
			close(c->fds[i]);
	}
}

static void closing_finish(const struct closing *c)
{
	for (uint32_t i = 0; i < c->segment_count; i++)
		segment_drop(c->segments[i].segment);
	free(c->segments);
	shared_charge_drop(c->shared);
	if (c->done)
		c->done(c->data);
}

static void on_work(uv_work_t *work)
{
	close_all(work->data);
}

static void on_finished(uv_work_t *work, int status)
{
	struct closing *c = work->data;

	(void)status;
	closing_finish(c);
	free(c);
}

static void closing_start(uv_loop_t *loop, const struct closing *what)
{
	struct closing *c = malloc(sizeof(*c) + what->fd_count * sizeof(what->fds[0]));

	if (c) {
		*c = *what;
		c->fds = memcpy(c->copied, what->fds, what->fd_count * sizeof(what->fds[0]));
		c->work.data = c;
		if (uv_queue_work(loop, &c->work, on_work, on_finished) == 0)
			return;
		free(c);
	}
	/* Out of memory: late is better than never. */
	close_all(what);
	closing_finish(what);
}

void closing_fds_then(uv_loop_t *loop, const int *fds, size_t count, closing_done_fn *done, void *data)
{
	const struct closing what = {.fds = fds, .fd_count = count, .done = done, .data = data};

	closing_start(loop, &what);
}

void closing_fds(uv_loop_t *loop, const int *fds, size_t count)
{
	closing_fds_then(loop, fds, count, NULL, NULL);
}

void closing_part(uv_loop_t *loop, struct replica *part, struct shared_charge *shared, closing_done_fn *done,
		  void *data)
{
	int fds[PART_SEGMENTS_MAX + 1] = {part->index.fd};
	size_t count = 1;
	struct closing what = {.segments = part->segments,
			       .segment_count = part->segment_count,
			       .shared = shared,
			       .done = done,
			       .data = data,
			       .fds = fds};

	for (uint32_t i = 0; i < part->segment_count; i++) {
		struct segment_hold *hold = &part->segments[i];

		if (!hold->last)
			continue;
		fds[count++] = hold->segment->fd;
		hold->segment->fd = -1;
	}
	what.fd_count = count;
	part->index.fd = -1;
	part->segments = NULL;
	part->segment_count = 0;
	closing_start(loop, &what);
}
