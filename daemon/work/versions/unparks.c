#include "unparks.h"

#include "leases.h"
#include "unparks_internal.h"
#include "../tiers/moves.h"
#include "../../net/session.h"
#include "../../../base/bytes.h"
#include "../../../base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- what goes on ---- */

/* Its holder is told, and it does not wait any more. */
static void unpark_fail(struct work *work, struct unpark *unpark, const struct error *why)
{
	unpark_take_back(work, unpark);
	unpark->why = *why;
	unpark->failed = true;
	waiters_wake(work->clients, WAIT_READY, unpark->lease->version);
}

static void group_fail(struct work *work, struct unpark *last, const struct error *why)
{
	struct unpark *unpark;

	while ((unpark = group_next(work, last, NULL)) != last) /* one that has failed is of no group */
		unpark_fail(work, unpark, why);
	unpark_fail(work, last, why);
}

static void group_take_back(struct work *work, const struct unpark *last)
{
	struct unpark *unpark = NULL;

	while ((unpark = group_next(work, last, unpark)))
		unpark_take_back(work, unpark);
}

static void group_say(struct work *work, const struct unpark *last)
{
	struct unpark *unpark = NULL;

	while ((unpark = group_next(work, last, unpark))) {
		if (unpark != last)
			unpark->why = last->why;
	}
}

/* Returns whether it has what was granted, or may still get it: its promotion may have failed, or an operator demoted the version again. */
static bool is_granted(const struct unpark *unpark)
{
	const struct version *version = unpark->lease->version;

	return unpark->granted && (version_is_there(version) || version->move);
}

/* Returns whether there is nothing to do: what was granted holds for all that have not heard of it, or nobody gets it any more. */
static bool group_check_granted(struct work *work, struct unpark *last)
{
	struct unpark *unpark = NULL;
	bool all = true;

	while ((unpark = group_next(work, last, unpark))) {
		const struct version *version = unpark->lease->version;

		if (unpark->granted && !is_granted(unpark) && unpark->promotion &&
		    unpark->promotion == version->promotion && version->promotion_error) {
			group_fail(work, last, version->promotion_error);
			return true;
		}
		all &= is_granted(unpark);
	}
	if (!all)
		group_take_back(work, last);
	return all;
}

static int promote(struct work *work, struct unpark *unpark, struct error *error)
{
	struct version *version = unpark->lease->version;
	const struct session *session = unpark->lease->holder;
	/* Not one of the promotions that attaches of a user may begin: the lease has its place among its devices' users. */
	const struct tiers_who who = {.uid = session->peer.uid, .by_operator = true};
	struct error why;
	int r = tiers_attach(work, version, &who, unpark->promotion, &unpark->promotion, &why);

	if (r == 0)
		return 0;
	return error_set(error, r, why.detail, "%s@%s lies on %s, and is not promoted: %.800s",
			 model_name(version->model), version->tag, tier_name(version->tier), why.message);
}

/* Charges the room, and begins the promotion, which charges the version. */
static int unpark_grant(struct work *work, struct unpark *unpark, struct error *error)
{
	struct version *version = unpark->lease->version;
	int r = lease_room_set(unpark->lease, unpark->room, work->ledger->quota, lease_payer(unpark->lease),
			       error);

	if (r < 0)
		return r;
	unpark->granted = true;
	version->waking++;
	if (!version_is_resident(version))
		r = promote(work, unpark, error);
	if (r == 0 && version_is_there(version))
		waiters_wake(work->clients, WAIT_READY, version);
	else if (r == 0)
		error_set(&unpark->why, -ETIMEDOUT, UNPARK_LATER,
			  "%s@%s lies on %s, and its promotion has begun", model_name(version->model),
			  version->tag, tier_name(version->tier));
	return r;
}

static void group_grant(struct work *work, struct unpark *last)
{
	struct unpark *unpark = NULL;
	struct error why;
	int r = 0;

	while (r == 0 && (unpark = group_next(work, last, unpark)))
		r = unpark_grant(work, unpark, &why);
	if (r < 0)
		group_fail(work, last, &why);
}

/* Returns 0, an error of the lease, or -EAGAIN if another move of the version has to end first: unpark->why says so. */
static int unpark_check(struct work *work, struct unpark *unpark, struct error *error)
{
	struct version *version = unpark->lease->version;
	int r = version_check_replica(version, unpark->lease->replica, error);

	if (r == 0 && !version_is_resident(version) && version->state != VERSION_READY)
		r = error_set(error, -ENOENT, "it gives no new leases", "%s@%s is retiring",
			      model_name(version->model), version->tag);
	if (r < 0 || version->moving_to <= version->tier)
		return r;
	moves_stop_demotion(work, version, "a process that unparks its lease");
	error_set(&unpark->why, -ETIMEDOUT, UNPARK_LATER,
		  "%s@%s lies on %s, and another move of it has to end first", model_name(version->model),
		  version->tag, tier_name(version->tier));
	return -EAGAIN;
}

/* Returns false if the group can't be looked at now. */
static bool group_prepare(struct work *work, struct unpark *last, struct needs *ret)
{
	struct unpark *unpark = NULL;
	struct error why;
	int r = 0;

	while (r == 0 && (unpark = group_next(work, last, unpark))) {
		r = unpark_check(work, unpark, &why);
		if (r == -EAGAIN) {
			last->why = unpark->why;
			return false;
		}
	}
	if (r == 0)
		r = needs_of(work, last, ret, &why);
	if (r == 0)
		r = needs_check_possible(ret, last, &why);
	if (r < 0)
		group_fail(work, last, &why);
	return r == 0;
}

static void group_look(struct work *work, struct unpark *last, struct heads *heads)
{
	struct needs needs;

	if (last->failed || group_check_granted(work, last))
		return;
	if (group_check_complete(work, last) && group_prepare(work, last, &needs)) {
		if (needs_fit(work, &needs, heads)) {
			group_grant(work, last);
			return;
		}
		heads_add(work, &needs, last, heads);
	}
	if (!last->failed)
		group_say(work, last);
}

/* ---- the queue ---- */

static void on_unpark_timer(uv_timer_t *timer)
{
	work_later(timer->data, LATER_UNPARKS);
}

static void unparks_arm(struct work *work, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (const struct unpark *unpark = work->unparks; unpark; unpark = unpark->next)
		next = unpark->until_ms < next ? unpark->until_ms : next;
	uv_timer_stop(&work->unparks_timer);
	if (next == UINT64_MAX)
		return;
	uv_update_time(work->loop);
	uv_timer_start(&work->unparks_timer, on_unpark_timer, next > now ? next - now : 0, 0);
}

static void unparks_look(struct work *work)
{
	const uint64_t now = clock_steady_ms();
	struct heads heads = {0};
	struct unpark *unpark, *next;

	for (unpark = work->unparks; unpark; unpark = next) {
		next = unpark->next;
		if (unpark->until_ms <= now)
			unparks_end(work, unpark->lease, false);
	}
	for (unpark = work->unparks; unpark; unpark = unpark->next) {
		if (group_is_last(work, unpark)) /* nobody's place ends here */
			group_look(work, unpark, &heads);
	}
	work_done(work, LATER_UNPARKS);
	unparks_arm(work, now);
}

void unparks_settle(struct work *work)
{
	/* What moves wait for, such as contexts that go, these wait for too. */
	if (work->unparks && (work_is_due(work, LATER_UNPARKS) || work_is_due(work, LATER_MOVES)))
		unparks_look(work);
	work_done(work, LATER_UNPARKS);
}

int unparks_ask(struct work *work, struct lease *lease, uint64_t room, int64_t wait_ms, bool *ret_comes,
		struct error *error)
{
	struct unpark *unpark = unpark_of(lease);
	uint64_t until;

	if (!unpark)
		unpark = unpark_new(work, lease, error);
	if (!unpark)
		return -ENOMEM;
	if (unpark->room != room)
		unpark_take_back(work, unpark);
	unpark->room = room;
	if (wait_ms < 0)
		until = UINT64_MAX;
	else if (__builtin_add_overflow(clock_steady_ms() + UNPARK_KEPT_MS, (uint64_t)wait_ms, &until))
		until = UINT64_MAX;
	group_keep(work, unpark, until);
	unparks_look(work);
	*ret_comes = !unpark->failed;
	if (unpark->granted && version_is_there(lease->version))
		return 0;
	*error = unpark->why;
	if (unpark->failed)
		unparks_end(work, lease, false);
	return error->code;
}
