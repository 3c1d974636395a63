#include "publishers.h"

#include "../../../base/clock.h"
#include "../work.h"
#include "../../base/loop.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

struct hand_in {
	uv_poll_t poll;
	struct job *job;
	uint64_t left_ms; /* steady: when the publisher closed its socket without handing in; 0: it did not */
};

static void on_hand_in_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct hand_in *hand_in_forget(struct hand_in *hand_in)
{
	if (hand_in)
		uv_close((uv_handle_t *)&hand_in->poll, on_hand_in_closed);
	return NULL;
}

bool hand_in_is_unread(const struct job *job)
{
	int unread = 0;

	return job->publisher_sock >= 0 && ioctl(job->publisher_sock, SIOCINQ, &unread) == 0 && unread > 0;
}

uint64_t hand_in_left_ms(const struct hand_in *hand_in)
{
	return hand_in->left_ms;
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct work *work = poll->loop->data;
	struct hand_in *hand_in = poll->data;
	struct job *job = hand_in->job;

	(void)status;
	(void)events;
	if (!hand_in_is_unread(job)) {
		hand_in->left_ms = clock_steady_ms();
		uv_poll_stop(poll);
		silence_watch(work->silence);
		return;
	}
	job->hand_in = hand_in_forget(hand_in);
	job_handed_in(&work->jobs, job);
	work_later(work, LATER_TURN);
}

int hand_in_await(struct work *work, struct job *job, struct error *error)
{
	struct hand_in *hand_in = calloc(1, sizeof(*hand_in));
	int r;

	if (!hand_in)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = uv_poll_init(work->loop, &hand_in->poll, job->publisher_sock);
	if (r < 0) {
		free(hand_in);
		return watching_failed(r, "the socket to a checker", error);
	}
	hand_in->poll.data = hand_in;
	hand_in->job = job;
	job->hand_in = hand_in;
	uv_poll_start(&hand_in->poll, UV_READABLE | UV_DISCONNECT, on_event);
	return 0;
}
