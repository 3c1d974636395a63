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
	unpark->why = *why;
	unpark->failed = true;
	unpark_take_back(work, unpark);
	waiters_wake(work->clients, WAIT_READY, unpark->lease->version);
}

static bool is_there(const struct version *version)
{
	return version_is_resident(version) && version->moving_to == version->tier;
}

static bool is_coming(const struct version *version)
{
	return !version_is_resident(version) && version->move && tier_is_resident(version->moving_to);
}

/* What was granted may have come to nothing: its promotion failed, or an operator demoted the version again. */
static void unpark_check_granted(struct work *work, struct unpark *unpark)
{
	const struct version *version = unpark->lease->version;

	if (is_there(version) || version->move)
		return;
	if (unpark->promotion && unpark->promotion == version->promotion && version->promotion_error)
		unpark_fail(work, unpark, version->promotion_error);
	else
		unpark_take_back(work, unpark);
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
static void unpark_grant(struct work *work, struct unpark *unpark)
{
	struct version *version = unpark->lease->version;
	struct error why;
	int r = lease_room_set(unpark->lease, unpark->room, work->ledger->quota, lease_payer(unpark->lease),
			       &why);

	if (r < 0) {
		unpark_fail(work, unpark, &why);
		return;
	}
	unpark->granted = true;
	version->waking++;
	if (!version_is_resident(version))
		r = promote(work, unpark, &why);
	if (r < 0)
		unpark_fail(work, unpark, &why);
	else if (is_there(version))
		waiters_wake(work->clients, WAIT_READY, version);
	else
		error_set(&unpark->why, -ETIMEDOUT, UNPARK_LATER,
			  "%s@%s lies on %s, and its promotion has begun", model_name(version->model),
			  version->tag, tier_name(version->tier));
}

/* Returns false if it can't be looked at now. */
static bool unpark_prepare(struct work *work, struct unpark *unpark, struct needs *ret)
{
	struct version *version = unpark->lease->version;
	struct error why;
	int r = version_check_replica(version, unpark->lease->replica, &why);

	if (r == 0 && !version_is_resident(version) && version->state != VERSION_READY)
		r = error_set(&why, -ENOENT, "it gives no new leases", "%s@%s is retiring",
			      model_name(version->model), version->tag);
	if (r == 0 && version->moving_to > version->tier) {
		moves_stop_demotion(work, version, "a process that unparks its lease");
		error_set(&unpark->why, -ETIMEDOUT, UNPARK_LATER,
			  "%s@%s lies on %s, and another move of it has to end first",
			  model_name(version->model), version->tag, tier_name(version->tier));
		return false;
	}
	if (r == 0)
		r = needs_of(work, unpark, is_coming(version) || version_is_resident(version), ret, &why);
	if (r == 0)
		r = needs_check_possible(ret, unpark, &why);
	if (r < 0)
		unpark_fail(work, unpark, &why);
	return r == 0;
}

static void unpark_look(struct work *work, struct unpark *unpark, struct heads *heads)
{
	struct needs needs;

	if (unpark->granted)
		unpark_check_granted(work, unpark);
	if (unpark->granted || unpark->failed || !unpark_prepare(work, unpark, &needs))
		return;
	if (needs_fit(work, &needs, unpark, heads))
		unpark_grant(work, unpark);
	else
		heads_add(work, &needs, unpark, heads);
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
		else
			unpark_look(work, unpark, &heads);
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
	if (until > unpark->until_ms)
		unpark->until_ms = until;
	unparks_look(work);
	*ret_comes = !unpark->failed;
	if (unpark->granted && is_there(lease->version))
		return 0;
	*error = unpark->why;
	if (unpark->failed)
		unparks_end(work, lease, false);
	return error->code;
}
