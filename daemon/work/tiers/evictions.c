#include "tiers.h"

#include "../loaders/loader.h"
#include "../../ledger/relocation.h"
#include "host_copies.h"
#include "room.h"
#include "../../../base/clock.h"
#include "../../base/metrics.h"
#include "../../clients/access.h"
#include "../../restart/keeping.h"
#include "../../../base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rules ---- */

static const struct rule_tiers *rule_of(const struct work *work, const struct version *version)
{
	static const struct rule_tiers none;
	const struct rule *rule = access_rule(work->clients, version->model);

	return rule ? &rule->tiers : &none;
}

/* A wish, for may_go. */
struct wisher {
	const struct work *work;
	const struct tiers_need *need;
	bool of_users; /* it is users' part of the budget that has no room */
};

static bool is_of_operator(const struct tiers_need *need)
{
	return need->version ? need->version->by_operator : need->who.by_operator;
}

/* Whoever attaches to a version, the room is for its owner. Operators are one owner. */
static bool is_of_one_owner(const struct tiers_need *need, const struct version *version)
{
	const uid_t uid = need->version ? need->version->owner : need->who.uid;
	const bool by_operator = is_of_operator(need);

	return version->by_operator == by_operator && (by_operator || version->owner == uid);
}

static bool may_go(void *data, const struct version *version, enum tier *ret)
{
	const struct wisher *wisher = data;
	const struct rule_tiers *rule = rule_of(wisher->work, version);

	*ret = rule->evict;
	if (wisher->of_users && version->by_operator)
		return false;
	/* Who parks consents: only a rule says to which tier, or for whom. */
	if (tier_is_resident(rule->evict) && version->parked_count > 0) {
		*ret = version_may_lie_on(version, ON_HOST) ? ON_HOST : ON_FILES;
		return true;
	}
	return !tier_is_resident(rule->evict) && (!rule->evict_own || is_of_one_owner(wisher->need, version));
}

/* What gpuwmd does by the operator's rules counts for nobody's quota. */
static const struct tiers_who by_rule = {.by_operator = true};

/* ---- room ---- */

static uint64_t less(uint64_t asked, uint64_t there)
{
	return asked > there ? asked - there : 0;
}

/* How much has to come free, besides what does so by itself: so that the bytes fit beside a context once the present ones have gone,
 * and beside those that will not go. */
static uint64_t lacking(const struct work *work, const struct tiers_need *need)
{
	const struct device *device = need->device;
	const uint64_t freed = room_being_freed(work, device) + host_copies_bytes(work, device);
	const uint64_t passing = loader_pool_passing(work->loaders, device, need->loader);
	uint64_t later, now;

	if (__builtin_add_overflow(need->bytes, need->no_context ? 0 : device->context, &later))
		return UINT64_MAX;
	later = less(later, budget_left(device) + freed);
	now = less(need->bytes, less(device->budget, device->used) + passing + freed);
	return later > now ? later : now;
}

/* The same of users' part of the budget. */
static uint64_t lacking_for_users(const struct work *work, const struct tiers_need *need)
{
	return is_of_operator(need) ? 0
				    : less(need->bytes, budget_left_for_users(need->device) +
								room_being_freed(work, need->device));
}

static uint64_t host_left(const struct work *work, const struct eviction_before *before)
{
	const struct device *host = device_find(&work->ledger->devices, DEVICE_HOST);

	return host ? less(host->budget + eviction_host_freed(before, host) + host_copies_bytes(work, host),
			   host->used + eviction_host_taken(before))
		    : 0;
}

static int choose(const struct work *work, const struct tiers_need *need, const struct eviction_before *before,
		  uint64_t now, struct eviction_plan *ret)
{
	const uint64_t bytes = lacking(work, need), of_users = lacking_for_users(work, need);
	struct wisher wisher = {work, need, of_users > 0};

	return eviction_choose(work->ledger->registry,
			       &(struct eviction_wish){
				       .device = need->device,
				       .bytes = of_users > bytes ? of_users : bytes,
				       .host_left = host_left(work, before),
				       .before = before,
				       .except = need->version,
				       .now_ms = now,
				       .min_resident_ms = work->config->min_resident_s * 1000,
				       .may_go = may_go,
				       .data = &wisher,
			       },
			       ret);
}

/* Returns whether the version is on its way to the tier. If it is not, *ret_why says why, and it is not tried again for a while. */
static bool evict(struct work *work, struct version *version, enum tier to, const char *reason, uint64_t now,
		  struct error *ret_why)
{
	if (tiers_demote(work, version, to, &by_rule, reason, ret_why) == 0) {
		metrics_count(work->net->metrics, METRIC_EVICTIONS, 1);
		return true;
	}
	if (version->copying) /* this ends first, and then who needs the room looks again */
		return true;
	log_info("%s@%s is not demoted: %s", model_name(version->model), version->tag, ret_why->message);
	version->demote_again_ms = now + DEMOTE_AGAIN_MS;
	return false;
}

/* Returns false if one of them could not be demoted; *ret_why says why the last one could not. */
static bool demote_all(struct work *work, const struct tiers_need *need, const struct eviction_plan *plan,
		       uint64_t now, struct error *ret_why)
{
	char reason[TEXT_BYTES_MAX + 1], bytes[BYTES_TEXT];
	bool all = true;

	bytes_format(need->bytes, bytes);
	if (need->version)
		snprintf(reason, sizeof(reason), "room on %s for %s of %s@%s", need->device->id, bytes,
			 model_name(need->version->model), need->version->tag);
	else
		snprintf(reason, sizeof(reason), "room on %s for %s", need->device->id, bytes);
	for (size_t i = 0; i < plan->count; i++)
		all &= evict(work, plan->list[i].version, plan->list[i].to, reason, now, ret_why);
	return all;
}

static void on_recent(uv_timer_t *timer)
{
	struct work *work = timer->data;

	work_later(work, LATER_ROOM);
	work_later(work, LATER_RESIDENTS);
}

/* Whether room comes when a version has been resident for long enough. */
static bool comes_later(const struct work *work, const struct tiers_need *need,
			const struct eviction_plan *plan)
{
	return plan->recent_until_ms > 0 &&
	       plan->bytes + plan->coming + plan->stays[STAYS_RECENT] >= lacking(work, need);
}

/* Others may wait for an earlier time. */
static void await_recent(struct work *work, uint64_t ms)
{
	uv_timer_t *timer = &work->recent_timer;

	uv_update_time(work->loop);
	if (!uv_is_active((uv_handle_t *)timer) || uv_timer_get_due_in(timer) > ms + 1)
		uv_timer_start(timer, on_recent, ms + 1, 0);
}

/* Judges what eviction_choose returned. */
static int evictions_refuse(int r, const struct eviction_plan *plan, const struct error *why,
			    struct error *error)
{
	char stays[EVICTION_TEXT], detail[TEXT_BYTES_MAX + 1];

	if (r == -ENOMEM)
		return error_set(error, r, NULL, "gpuwmd is out of memory");
	if (r != -ENOSPC)
		return r;
	eviction_explain(plan, stays);
	if (!stays[0])
		return r;
	snprintf(detail, sizeof(detail), "%.200s; what stays there: %s%s%.120s", error->detail, stays,
		 why->code ? ": " : "", why->code ? why->message : "");
	error_set(error, error->code, detail, "%s", error->message);
	return r;
}

int evictions_make_room(struct work *work, const struct tiers_need *need, struct error *error)
{
	const struct eviction_before nothing = {0};
	const uint64_t now = clock_wall_ms();
	struct eviction_plan plan = {0};
	struct error why = {0};
	bool done = false;
	uint64_t grace;
	int r = 0;

	if (need->who.restores) /* what was resident comes back where there is room */
		return -ENOSPC;
	if (budget_is_exceeded(need->device)) /* which of too many versions go is not for gpuwmd to say */
		return -ENOSPC;
	while (!done) {
		free(plan.list);
		r = choose(work, need, &nothing, now, &plan);
		if (r != 0)
			break;
		grace = keeping_await_ms(work->keeping);
		if (grace > 0) /* after a restart leases may come back, and nothing is demoted before */
			await_recent(work, grace);
		done = grace > 0 || demote_all(work, need, &plan, now, &why);
	}
	if (r == 0)
		host_copies_drop_for(work, need->device, need->bytes);
	if (r == -ENOSPC && comes_later(work, need, &plan)) {
		await_recent(work, plan.recent_until_ms - now);
		r = 0;
	}
	free(plan.list);
	return evictions_refuse(r, &plan, &why, error);
}

bool evictions_heal(struct work *work, struct version *version, const char *reason)
{
	struct error why;

	return version_has_whole_copy(version) &&
	       tiers_demote(work, version, ON_HOST, &by_rule, reason, &why) == 0;
}

void evictions_again(struct work *work)
{
	on_recent(&work->recent_timer);
	idle_arm(work);
}

int evictions_foresee(const struct work *work, const struct tiers_need *need,
		      const struct eviction_before *before, struct eviction_plan *ret, struct error *error)
{
	const struct error none = {0};
	int r;

	*ret = (struct eviction_plan){0};
	if (budget_is_exceeded(need->device))
		return -ENOSPC;
	r = choose(work, need, before, clock_wall_ms(), ret);
	return r == -ENOSPC && comes_later(work, need, ret) ? 0 : evictions_refuse(r, ret, &none, error);
}

/* ---- max_resident ---- */

static bool may_leave(const struct version *version, enum tier to, uint64_t now)
{
	return version_is_resident(version) && !version_is_busy(version) &&
	       version_awake_leases(version) == 0 && version->pin_count == 0 && !version->tainted &&
	       !version->cache.cached && version->demote_again_ms <= now && version_may_lie_on(version, to);
}

/* Of one model. */
struct residents {
	uint64_t count;
	struct version *oldest; /* of those that may leave: the one that was not used for longest */
	uint64_t recent_until_ms; /* when the first of the others may leave; 0: none of them */
};

static struct residents residents_of(const struct work *work, const char *model, enum tier to, uint64_t now)
{
	const uint64_t min_resident_ms = work->config->min_resident_s * 1000;
	struct residents residents = {0};
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, model, version))) {
		uint64_t until;

		if (version->state != VERSION_READY || !tier_is_resident(version->moving_to))
			continue;
		residents.count++;
		if (!may_leave(version, to, now))
			continue;
		until = version_recent_until(version, now, min_resident_ms);
		if (until > 0) {
			if (residents.recent_until_ms == 0 || until < residents.recent_until_ms)
				residents.recent_until_ms = until;
		} else if (!residents.oldest || version_used_ms(version) < version_used_ms(residents.oldest)) {
			residents.oldest = version;
		}
	}
	return residents;
}

static void keep_to_most(struct work *work, const struct model *model, const struct rule_tiers *rule)
{
	/* What makes no room for others may be too much of its own model. */
	const enum tier to = tier_is_resident(rule->evict) ? ON_HOST : rule->evict;
	const uint64_t now = clock_wall_ms();
	char reason[TEXT_BYTES_MAX + 1];
	struct residents residents;

	snprintf(reason, sizeof(reason), "max_resident = %llu of its model",
		 (unsigned long long)rule->max_resident);
	while (residents = residents_of(work, model_name(model), to, now),
	       residents.oldest && residents.count > rule->max_resident) {
		struct error why;

		evict(work, residents.oldest, to, reason, now, &why);
	}
	if (residents.count > rule->max_resident && residents.recent_until_ms)
		await_recent(work, residents.recent_until_ms - now);
}

void evictions_settle(struct work *work)
{
	const struct model *last = NULL;
	struct version *version = NULL;

	if (!work_is_due(work, LATER_RESIDENTS) || keeping_await_ms(work->keeping) > 0)
		return;
	work_done(work, LATER_RESIDENTS);
	if (!rules_limit_residents(&work->config->rules))
		return;
	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		const struct rule_tiers *rule = version->model == last ? NULL : rule_of(work, version);

		last = version->model;
		if (rule && rule->max_resident && !version_is_nameless(version))
			keep_to_most(work, version->model, rule);
	}
}

/* ---- idle ---- */

/* When the version is due for a lower tier by `idle` of its rule; 0: never. */
static uint64_t idle_due(const struct version *version, const struct rule_tiers *rule, enum tier *ret_to)
{
	uint64_t first = 0;

	for (enum tier tier = version->tier + 1; tier < TIERS; tier++) {
		const uint64_t due = version_used_ms(version) + rule->idle_s[tier] * 1000;

		if (rule->idle_s[tier] == 0 || !version_may_lie_on(version, tier) || (first && first <= due))
			continue;
		first = due;
		*ret_to = tier;
	}
	return first;
}

static bool may_idle(const struct version *version)
{
	return version->state == VERSION_READY && !version->move && version_awake_leases(version) == 0 &&
	       version->pin_count == 0 && !version->tainted && !version->cache.cached &&
	       !version_is_nameless(version);
}

/* Demotes what is due, and returns when something is due next, by the clock of the wall. */
static uint64_t demote_all_idle(struct work *work, uint64_t now, uint64_t next)
{
	struct version *version = NULL;
	char reason[TEXT_BYTES_MAX + 1];
	struct error why;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		const struct rule_tiers *rule = may_idle(version) ? rule_of(work, version) : NULL;
		enum tier to;
		uint64_t due = rule ? idle_due(version, rule, &to) : 0;

		if (due && due < version->demote_again_ms)
			due = version->demote_again_ms;
		if (due && due <= now) {
			snprintf(reason, sizeof(reason), "nobody has leased it for %llu s",
				 (unsigned long long)(now - version_used_ms(version)) / 1000);
			evict(work, version, to, reason, now, &why);
		} else if (due && due < next) {
			next = due;
		}
	}
	return next;
}

static void on_idle(uv_timer_t *timer)
{
	idle_arm(timer->data);
}

/* A version that is in use now is due after the shortest time of all rules at the earliest: so nobody has to tell the timer when a lease
 * ends. */
void idle_arm(struct work *work)
{
	const uint64_t shortest = rules_shortest_idle_s(&work->config->rules) * 1000, now = clock_wall_ms();
	const uint64_t grace = keeping_await_ms(work->keeping);
	uint64_t next;

	uv_timer_stop(&work->idle_timer);
	if (shortest == 0 || work->draining)
		return;
	next = grace > 0 ? now + grace : demote_all_idle(work, now, now + shortest);
	uv_update_time(work->loop);
	uv_timer_start(&work->idle_timer, on_idle, next - now, 0);
}
