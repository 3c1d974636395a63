#include "silence.h"

#include "../../base/clock.h"
#include "../work.h"
#include "../../net/session.h"
#include "versions.h"

#include <errno.h>
#include <stdlib.h>

struct silence {
	struct work *work;
	uv_timer_t timer;
};

static void on_closed(uv_handle_t *handle)
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
		uv_close((uv_handle_t *)&silence->timer, on_closed);
	return NULL;
}

/* ---- one part ---- */

static int give_up_silent(const struct publish_part *part, struct error *error)
{
	const struct session *s = part->publisher;

	return error_set(
		error, -ETIMEDOUT,
		"any request is a sign of life, and libgpuwm-client gives them by itself; an operator may "
		"raise publish_silence_ms in [limits] of gpuwmd's configuration",
		"its publisher (%s, pid %d, uid %u) gave no sign of life for %llu ms before its commit",
		s->peer.command, (int)s->peer.pid, (unsigned)s->peer.uid, (unsigned long long)part->silence_ms);
}

/* When to look at the publisher again; 0: it is given up, *error. What it sent may lie unread, so it has two looks. */
static uint64_t look_at_publisher(struct publish_part *part, uint64_t now, struct error *error)
{
	uint64_t due = *part->heard_ms + part->silence_ms;

	if (now < due) {
		part->doubted_ms = 0;
		return due;
	}
	if (!part->doubted_ms)
		part->doubted_ms = now;
	if (now < part->doubted_ms + PUBLISH_LOOK_AGAIN_MS)
		return part->doubted_ms + PUBLISH_LOOK_AGAIN_MS;
	give_up_silent(part, error);
	return 0;
}

/* The same for a part that was committed and not handed in: nobody is left who must give signs. */
static uint64_t look_at_commit(const struct work *work, const struct job *check, uint64_t now,
			       struct error *error)
{
	uint64_t allowed = work->config->check_stall_ms, due = check->watched_ms + allowed;

	if (now < due)
		return due;
	error_set(error, -ETIMEDOUT, "check_stall_ms in [limits] of gpuwmd's configuration changes it",
		  "it was committed, but its memory was not handed in within %llu ms",
		  (unsigned long long)allowed);
	return 0;
}

/* The same for a part whose checker's socket the publisher has closed. */
static uint64_t look_at_left(const struct job *check, uint64_t now, struct error *error)
{
	uint64_t due = check->left_ms + PUBLISH_LOOK_AGAIN_MS;

	if (now < due)
		return due;
	error_set(error, -ECANCELED, "hand_in comes before the end of the checker's socket",
		  "the publisher went away before it handed its memory in");
	return 0;
}

/* UINT64_MAX: it is not waited for. */
static uint64_t look_at_part(const struct work *work, struct publish_part *part, uint64_t now,
			     struct error *error)
{
	const struct job *check = part->checker;

	if (check && check->hand_in && check->left_ms)
		return look_at_left(check, now, error);
	if (part->publisher && part->heard_ms)
		return look_at_publisher(part, now, error);
	if (!part->publisher && check && check->hand_in)
		return look_at_commit(work, check, now, error);
	return UINT64_MAX;
}

/* ---- all of them ---- */

/* As look_at_part, of the part that is due first. */
static uint64_t look_at_publish(const struct work *work, struct publish *publish, uint64_t now,
				struct error *error)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t i = 0; first > 0 && i < publish->part_count; i++) {
		uint64_t due = look_at_part(work, &publish->parts[i], now, error);

		first = due < first ? due : first;
	}
	return first;
}

static void on_timer(uv_timer_t *timer)
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
		uint64_t due = look_at_publish(work, publish, now, &error);

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
		uv_timer_start(&silence->timer, on_timer, first - now, 0);
}
