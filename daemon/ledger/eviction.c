#include "eviction.h"
#include "relocation.h"

#include "../../base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a version has there ---- */

uint64_t eviction_bytes(const struct version *version, const struct device *device)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		for (uint32_t k = 0; k < part->segment_count; k++) {
			const struct segment *segment = part->segments[k].segment;

			if (segment->charge.device == device && !segment_is_shared(segment))
				bytes += segment->charge.bytes;
		}
	}
	return bytes;
}

uint64_t version_used_ms(const struct version *version)
{
	uint64_t used = version->ready_ms;

	if (version->resident_ms > used)
		used = version->resident_ms;
	return version->last_used_ms > used ? version->last_used_ms : used;
}

bool version_belongs_to_host(const struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (!version->replicas[i].device->kind->is_gpu)
			return true;
	}
	return false;
}

bool version_may_lie_on(const struct version *version, enum tier tier)
{
	if (!tier_has_memory(tier))
		return description_has_files(version->description);
	return !tier_kinds[tier].device || !version_belongs_to_host(version);
}

/* ---- who may go ---- */

bool version_is_busy(const struct version *version)
{
	return version->copying ? version->readers > 1 : version->move || version->readers > 0;
}

uint64_t version_recent_until(const struct version *version, uint64_t now_ms, uint64_t min_resident_ms)
{
	const uint64_t until = version->resident_ms + min_resident_ms;

	/* The clock may have been set back since. */
	return version->resident_ms <= now_ms && until > now_ms ? until : 0;
}

/* Whoever parked does not ask for that time. */
static uint64_t recent_until(const struct version *version, const struct eviction_wish *wish)
{
	return version->parked_count > 0 ? 0
					 : version_recent_until(version, wish->now_ms, wish->min_resident_ms);
}

/* Returns an enum eviction_stay, or EVICTION_STAYS if the version may go to *ret_to. */
static enum eviction_stay eviction_judge(const struct version *version, const struct eviction_wish *wish,
					 enum tier *ret_to)
{
	if (version_awake_leases(version) > 0 || version->waking > 0 || version->revoked)
		return STAYS_LEASED;
	if (version->pin_count > 0)
		return STAYS_PINNED;
	if (version == wish->except || version->state != VERSION_READY || version_is_busy(version) ||
	    version->tainted || version_is_nameless(version) || version->cache.cached)
		return STAYS_BUSY;
	if (!wish->may_go(wish->data, version, ret_to) || *ret_to <= version->tier ||
	    (tier_has_memory(*ret_to) && !version_may_lie_on(version, *ret_to)))
		return STAYS_RULE;
	if (!version_may_lie_on(version, *ret_to))
		return STAYS_WITHOUT_FILES;
	if (version->demote_again_ms > wish->now_ms)
		return STAYS_FAILED;
	return recent_until(version, wish) ? STAYS_RECENT : EVICTION_STAYS;
}

static bool has_left(const struct version *version, const struct eviction_before *before)
{
	for (size_t i = 0; i < before->count; i++) {
		for (size_t j = 0; j < before->plans[i].count; j++) {
			if (before->plans[i].list[j].version == version)
				return true;
		}
	}
	return false;
}

/* What the version that needs the room would share with this one makes no room: it would need that much more then. */
static uint64_t bytes_for(const struct version *version, const struct eviction_wish *wish)
{
	const uint64_t bytes = eviction_bytes(version, wish->device);
	const uint64_t twins =
		bytes > 0 && wish->except ? version_twin_bytes(wish->except, version, wish->device) : 0;

	return bytes > twins ? bytes - twins : 0;
}

static int look_at(struct version *version, const struct eviction_wish *wish, struct eviction_plan *plan)
{
	struct eviction eviction = {.version = version, .bytes = bytes_for(version, wish)};
	struct eviction *list;
	enum eviction_stay stay;
	uint64_t until;

	if (eviction.bytes == 0)
		return 0;
	if ((version->move && version->moving_to > version->tier) || has_left(version, wish->before)) {
		plan->coming += eviction.bytes;
		return 0;
	}
	stay = eviction_judge(version, wish, &eviction.to);
	if (stay != EVICTION_STAYS) {
		plan->stays[stay] += eviction.bytes;
		until = stay == STAYS_RECENT ? recent_until(version, wish) : 0;
		if (until && (plan->recent_until_ms == 0 || until < plan->recent_until_ms))
			plan->recent_until_ms = until;
		return 0;
	}
	list = reallocarray(plan->list, plan->count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	plan->list = list;
	list[plan->count++] = eviction;
	plan->bytes += eviction.bytes;
	return 0;
}

/* ---- which of them ---- */

static int by_use(const void *a, const void *b)
{
	const struct version *x = ((const struct eviction *)a)->version;
	const struct version *y = ((const struct eviction *)b)->version;

	if (version_used_ms(x) != version_used_ms(y))
		return version_used_ms(x) < version_used_ms(y) ? -1 : 1;
	return memcmp(&x->id, &y->id, sizeof(x->id));
}

/* The first ones that suffice; then, from the last used on, those without which the others suffice too stay. */
static void choose(struct eviction_plan *plan, uint64_t needed)
{
	uint64_t sum = 0;
	size_t count = 0;

	for (size_t i = 0; i < plan->count; i++) {
		plan->list[i].chosen = sum < needed;
		if (!plan->list[i].chosen)
			continue;
		sum += plan->list[i].bytes;
		count = i + 1;
	}
	while (count-- > 0) {
		if (sum - plan->list[count].bytes < needed)
			continue;
		sum -= plan->list[count].bytes;
		plan->list[count].chosen = false;
	}
}

/* Whether the parts of all versions on this tier lie on the device. */
static bool is_on(enum tier tier, const char *device)
{
	return tier_kinds[tier].device && strcmp(tier_kinds[tier].device, device) == 0;
}

/* Of host memory. */
static uint64_t taken_by(const struct eviction *eviction)
{
	const struct version *version = eviction->version;
	uint64_t bytes = 0;

	for (uint32_t i = 0; is_on(eviction->to, DEVICE_HOST) && i < version->replica_count; i++)
		bytes += version->replicas[i].spares ? 0 : version->replicas[i].bytes;
	return bytes;
}

uint64_t eviction_host_taken(const struct eviction_before *before)
{
	uint64_t bytes = before->host_bytes;

	for (size_t i = 0; i < before->count; i++) {
		for (size_t j = 0; j < before->plans[i].count; j++)
			bytes += taken_by(&before->plans[i].list[j]);
	}
	return bytes;
}

uint64_t eviction_host_freed(const struct eviction_before *before, const struct device *host)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < before->count; i++) {
		for (size_t j = 0; j < before->plans[i].count; j++) {
			const struct eviction *eviction = &before->plans[i].list[j];

			bytes += is_on(eviction->to, host->id) ? 0 : eviction_bytes(eviction->version, host);
		}
	}
	return bytes;
}

/* Returns the position of the first chosen one that host has no room for, beside those before it; plan->count: there is none. */
static size_t find_too_much(const struct eviction_plan *plan, uint64_t host_left)
{
	size_t i = 0;

	for (; i < plan->count; i++) {
		const struct eviction *eviction = &plan->list[i];
		uint64_t bytes = eviction->chosen ? taken_by(eviction) : 0;

		if (bytes > host_left)
			break;
		host_left -= bytes;
	}
	return i;
}

static void keep_chosen(struct eviction_plan *plan)
{
	size_t kept = 0;

	plan->bytes = 0;
	for (size_t i = 0; i < plan->count; i++) {
		if (!plan->list[i].chosen)
			continue;
		plan->bytes += plan->list[i].bytes;
		plan->list[kept++] = plan->list[i];
	}
	plan->count = kept;
}

static int choose_all(struct eviction_plan *plan, const struct eviction_wish *wish)
{
	while (plan->bytes + plan->coming >= wish->bytes) {
		size_t too_much;

		choose(plan, wish->bytes > plan->coming ? wish->bytes - plan->coming : 0);
		too_much = find_too_much(plan, wish->host_left);
		if (too_much == plan->count) {
			keep_chosen(plan);
			return 0;
		}
		plan->stays[STAYS_WITHOUT_HOST] += plan->list[too_much].bytes;
		plan->bytes -= plan->list[too_much].bytes;
		plan->count--;
		memmove(&plan->list[too_much], &plan->list[too_much + 1],
			(plan->count - too_much) * sizeof(*plan->list));
	}
	plan->count = 0;
	return -ENOSPC;
}

int eviction_choose(struct registry *registry, const struct eviction_wish *wish, struct eviction_plan *ret)
{
	struct version *version = NULL;
	int r = 0;

	*ret = (struct eviction_plan){0};
	while (r == 0 && (version = registry_next_version(registry, NULL, version)))
		r = look_at(version, wish, ret);
	if (r < 0)
		return r;
	if (ret->count > 0)
		qsort(ret->list, ret->count, sizeof(*ret->list), by_use);
	return choose_all(ret, wish);
}

/* ---- words ---- */

void eviction_explain(const struct eviction_plan *plan, char text[EVICTION_TEXT])
{
	static const char *const words[EVICTION_STAYS] = {
		[STAYS_LEASED] = "leased",
		[STAYS_PINNED] = "pinned",
		[STAYS_BUSY] = "in use by jobs",
		[STAYS_RECENT] = "not resident for long enough (min_resident)",
		[STAYS_FAILED] = "of versions whose demotion failed",
		[STAYS_RULE] = "not to be evicted for this (evict)",
		[STAYS_WITHOUT_FILES] = "of versions without files",
		[STAYS_WITHOUT_HOST] = "that the budget of host has no room for",
	};
	size_t used = 0;
	char amount[BYTES_TEXT];

	text[0] = '\0';
	for (int stay = 0; stay < EVICTION_STAYS && used < EVICTION_TEXT; stay++) {
		if (plan->stays[stay] > 0)
			used += (size_t)snprintf(text + used, EVICTION_TEXT - used, "%s%s %s", used ? ", " : "",
						 bytes_format(plan->stays[stay], amount), words[stay]);
	}
}
