#include "publishers.h"

#include "../../../base/clock.h"
#include "../work.h"
#include "../../net/session.h"
#include "versions.h"

#include <errno.h>
#include <stdlib.h>

struct silence {
	struct work *work;
	uv_timer_t timer;
};

static void on_silence_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct silence *silence_new(struct work *work)
{
	struct silence *silence = calloc(1, sizeof(*silence));

	if (!silence)
		return NULL;
	silence->work = work;
	uv_timer_init(work->loop, &silence->timer);
	silence->timer.data = silence;
	return silence;
}

struct silence *silence_free(struct silence *silence)
{
	if (silence)
		uv_close((uv_handle_t *)&silence->timer, on_silence_closed);
	return NULL;
}

/* ---- one part ---- */

/* When to look at the publisher again; 0: it is given up, *error. What it sent may lie unread, so it has two looks. */
static uint64_t look_at_publisher(struct publish_part *part, uint64_t now, struct error *error)
{
	const struct session *s = part->publisher;
	uint64_t due = *part->heard_ms + part->silence_ms;

	if (now < due) {
		part->doubted_ms = 0;
		return due;
	}
	if (!part->doubted_ms)
		part->doubted_ms = now;
	if (now < part->doubted_ms + PUBLISH_LOOK_AGAIN_MS)
		return part->doubted_ms + PUBLISH_LOOK_AGAIN_MS;
	error_set(error, -ETIMEDOUT,
		  "any request is a sign of life, and libgpuwm-client gives them by itself; an operator may "
		  "raise publish_silence_ms in [limits] of gpuwmd's configuration",
		  "its publisher (%s, pid %d, uid %u) gave no sign of life for %llu ms before its commit",
		  s->peer.command, (int)s->peer.pid, (unsigned)s->peer.uid,
		  (unsigned long long)part->silence_ms);
	return 0;
}

/* The same for any part; UINT64_MAX: it is not waited for. */
static uint64_t look_at_part(const struct work *work, struct publish_part *part, uint64_t now,
			     struct error *error)
{
	const struct job *checker = part->checker, *check = checker && checker->hand_in ? checker : NULL;
	const uint64_t allowed = work->config->check_stall_ms;
	const uint64_t left_ms = check ? hand_in_left_ms(check->hand_in) : 0;
	uint64_t due;

	if (left_ms) {
		due = left_ms + PUBLISH_LOOK_AGAIN_MS;
		if (now < due)
			return due;
		error_set(error, -ECANCELED, "hand_in comes before the end of the checker's socket",
			  "the publisher went away before it handed its memory in");
		return 0;
	}
	if (part->publisher && part->heard_ms)
		return look_at_publisher(part, now, error);
	if (part->publisher || !check)
		return UINT64_MAX;
	/* It was committed and not handed in, and nobody is left who must give signs. */
	due = check->watched_ms + allowed;
	if (now < due)
		return due;
	error_set(error, -ETIMEDOUT, "check_stall_ms in [limits] of gpuwmd's configuration changes it",
		  "it was committed, but its memory was not handed in within %llu ms",
		  (unsigned long long)allowed);
	return 0;
}

/* ---- all of them ---- */

static void on_silence_due(uv_timer_t *timer)
{
	silence_watch(timer->data);
}

void silence_watch(struct silence *silence)
{
	struct work *work = silence->work;
	struct publish *publish = publish_next(work->ledger->publishes, NULL), *next;
	uint64_t now = clock_steady_ms(), first = UINT64_MAX;
	struct error error;

	for (; publish; publish = next) {
		uint64_t due = UINT64_MAX; /* of the part that is due first */

		for (uint32_t i = 0; due > 0 && i < publish->part_count; i++) {
			uint64_t part_due = look_at_part(work, &publish->parts[i], now, &error);

			due = part_due < due ? part_due : due;
		}
		next = publish_next(work->ledger->publishes, publish);
		if (due == 0)
			versions_fail(work, publish, &error, NULL);
		else
			first = due < first ? due : first;
	}
	uv_update_time(work->loop);
	if (first == UINT64_MAX)
		uv_timer_stop(&silence->timer);
	else
		uv_timer_start(&silence->timer, on_silence_due, first - now, 0);
}
