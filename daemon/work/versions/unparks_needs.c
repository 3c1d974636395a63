/* What leases that wait need of their devices, what there is, and what is in the way. */
#include "unparks_internal.h"

#include "leases.h"
#include "../loaders/loader.h"
#include "../tiers/room.h"
#include "../../net/session.h"
#include "../../../base/bytes.h"
#include "../../../base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it needs ---- */

static uint64_t less(uint64_t asked, uint64_t there)
{
	return asked > there ? asked - there : 0;
}

static struct need *need_on(struct needs *needs, struct device *device)
{
	for (uint32_t i = 0; i < needs->count; i++) {
		if (needs->list[i].device == device)
			return &needs->list[i];
	}
	needs->list[needs->count] = (struct need){.device = device};
	return &needs->list[needs->count++];
}

bool version_is_there(const struct version *version)
{
	return version_is_resident(version) && version->moving_to == version->tier;
}

bool version_is_coming(const struct version *version)
{
	return !version_is_resident(version) && version->move && tier_is_resident(version->moving_to);
}

/* Of several leases of a version the first one brings it. */
static bool brings_version(const struct work *work, const struct unpark *of)
{
	struct unpark *first = NULL;

	while ((first = group_next(work, of, first)) != of) {
		if (first->lease->version == of->lease->version)
			return false;
	}
	return !version_is_resident(of->lease->version) && !version_is_coming(of->lease->version);
}

static int add_weights(struct work *work, struct version *version, struct needs *needs, struct error *error)
{
	struct tiers_needed needed = {0};
	int r = tiers_needed(work, version, &needed, error);

	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++) {
		struct need *need = need_on(needs, version->replicas[i].device);

		need->weights += needed.bytes[i];
		need->users += version->by_operator ? 0 : needed.bytes[i];
	}
	return r;
}

static void add_room(const struct unpark *unpark, struct needs *needs)
{
	const uint64_t more = less(unpark->room, unpark->before);
	struct need *need;

	if (more == 0)
		return;
	need = need_on(needs, lease_device(unpark->lease));
	need->room += more;
	need->users += lease_payer(unpark->lease) ? more : 0;
	need->had += unpark->before;
}

int needs_of(struct work *work, const struct unpark *last, struct needs *ret, struct error *error)
{
	struct unpark *unpark = NULL;
	int r = 0;

	*ret = (struct needs){0};
	while (r == 0 && (unpark = group_next(work, last, unpark))) {
		if (brings_version(work, unpark))
			r = add_weights(work, unpark->lease->version, ret, error);
		add_room(unpark, ret);
	}
	return r;
}

static uint64_t sum_of(const struct need *need)
{
	return need->weights + need->room;
}

/* A loader that copies the version needs a context besides. */
static uint64_t with_context(const struct need *need)
{
	return sum_of(need) + (need->weights ? need->device->context : 0);
}

/* ---- words ---- */

static int no_room(const struct need *need, const struct unpark *unpark, const char *detail, int code,
		   struct error *error)
{
	const struct version *version = unpark->lease->version;
	const struct device *device = need->device;
	char sum[BYTES_TEXT], weights[BYTES_TEXT], room[BYTES_TEXT], left[BYTES_TEXT], budget[BYTES_TEXT];

	return error_set(error, code, detail,
			 "no room on %s: %s asked for (%s of %s@%s, %s besides), %s of the budget of %s left",
			 device->id, bytes_format(sum_of(need), sum), bytes_format(need->weights, weights),
			 model_name(version->model), version->tag, bytes_format(need->room, room),
			 bytes_format(budget_left(device), left), bytes_format(device->budget, budget));
}

/* As many as a line has room for. */
#define HOLDERS_NAMED 3

/* Says which processes are awake there. Other users are not named. */
static void name_awake(const struct work *work, const struct need *need, const struct unpark *unpark,
		       char *text, size_t size)
{
	const struct session *asker = unpark->lease->holder;
	struct version *version = NULL;
	unsigned named = 0, others = 0;
	size_t used = 0;

	text[0] = '\0';
	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		for (const struct lease *lease = version->leases; lease; lease = lease->next_of_version) {
			const struct session *session = lease->holder;
			char bytes[BYTES_TEXT];

			if (lease->parked || group_has(unpark, lease) || lease_device(lease) != need->device)
				continue;
			if ((asker->kind != SESSION_ADMIN && session->peer.uid != asker->peer.uid) ||
			    named == HOLDERS_NAMED || used >= size) {
				others++;
				continue;
			}
			used += (size_t)snprintf(
				text + used, size - used, "%s%s (pid %d, uid %u) has %s@%s and %s besides",
				named++ ? ", " : "", session->peer.command, (int)session->peer.pid,
				(unsigned)session->peer.uid, model_name(version->model), version->tag,
				bytes_format(lease_room_bytes(lease), bytes));
		}
	}
	if (others > 0 && used < size)
		snprintf(text + used, size - used, "%s%u %s", used ? ", and " : "", others,
			 named         ? "more"
			 : others == 1 ? "other lease"
				       : "other leases");
}

/* ---- what is there ---- */

int needs_check_possible(const struct needs *needs, const struct unpark *unpark, struct error *error)
{
	for (uint32_t i = 0; i < needs->count; i++) {
		const struct need *need = &needs->list[i];
		const uint64_t budget = need->device->budget;

		if (sum_of(need) > 0 && (with_context(need) + need->had > budget ||
					 need->users + need->had > budget - share_reserved(budget)))
			return no_room(
				need, unpark,
				"ask for less, or raise [budget] of the device: it never had so much, with the "
				"context of a loader, and with an eighth that is kept for operators",
				-ENOSPC, error);
	}
	return 0;
}

static bool need_fits(const struct need *need)
{
	return (need->weights == 0 || budget_check_with_context(need->device, sum_of(need), NULL) == 0) &&
	       budget_check(need->device, sum_of(need), NULL) == 0 &&
	       budget_check_users(need->device, need->users, NULL) == 0;
}

/* What comes free on a device when leases that are awake park. */
struct awake {
	uint64_t all; /* if all of them do */
	uint64_t fewest; /* if one of them does: of those with which anything comes free. 0: there is none */
};

static void add_awake(const struct version *version, const struct device *device, struct awake *awake)
{
	const uint64_t bytes = version->pin_count == 0 ? eviction_bytes(version, device) : 0;
	const uint64_t leases = version_awake_leases(version);

	awake->all += leases > 0 ? bytes : 0;
	for (const struct lease *lease = version->leases; lease; lease = lease->next_of_version) {
		const uint64_t room = lease_device(lease) == device ? lease_room_bytes(lease) : 0;
		const uint64_t frees = room + (leases == 1 ? bytes : 0);

		if (lease->parked)
			continue;
		awake->all += room;
		if (frees > 0 && (awake->fewest == 0 || frees < awake->fewest))
			awake->fewest = frees;
	}
}

static struct awake awake_on(const struct work *work, const struct device *device)
{
	struct version *version = NULL;
	struct awake awake = {0};

	while ((version = registry_next_version(work->ledger->registry, NULL, version)))
		add_awake(version, device, &awake);
	return awake;
}

/* Whether the head goes as soon, also if so many bytes are taken before it. */
static bool passes(const struct work *work, const struct head *head, uint64_t bytes)
{
	if (head->lacking == 0)
		return bytes <= head->spare;
	return awake_on(work, head->device).fewest >= head->lacking + bytes;
}

static const struct head *head_on(const struct heads *heads, const struct device *device)
{
	for (uint32_t i = 0; i < heads->count; i++) {
		if (heads->list[i].device == device)
			return &heads->list[i];
	}
	return NULL;
}

bool needs_fit(const struct work *work, const struct needs *needs, const struct heads *heads)
{
	for (uint32_t i = 0; i < needs->count; i++) {
		const struct need *need = &needs->list[i];
		const struct head *head = head_on(heads, need->device);

		if (sum_of(need) == 0)
			continue;
		if (!need_fits(need) || (head && !passes(work, head, sum_of(need))))
			return false;
	}
	return true;
}

/* ---- making room ---- */

static bool comes_by_itself(const struct work *work, const struct need *need)
{
	if (need->weights > 0)
		return room_wait(work, need->device, sum_of(need), 0, NULL) != ROOM_NEVER;
	return sum_of(need) <= budget_left(need->device) + room_being_freed(work, need->device);
}

/* Sets what those that wait later may take. */
static void head_measure(const struct work *work, const struct need *need, const struct tiers_need *tiers,
			 uint64_t users, struct head *head)
{
	const struct eviction_before nothing = {0};
	struct eviction_plan plan;
	struct error unused = {0};
	uint64_t there = budget_left(need->device) + room_being_freed(work, need->device);

	evictions_foresee(work, tiers, &nothing, &plan, &unused);
	there += plan.bytes + plan.coming;
	free(plan.list);
	head->lacking = less(with_context(need), there);
	if (less(users, budget_left_for_users(need->device)) > head->lacking)
		head->lacking = less(users, budget_left_for_users(need->device));
}

static void add_user(struct event_about *about, uid_t uid)
{
	for (uint32_t i = 0; i < about->user_count && i < EVENT_USERS_MAX; i++) {
		if (about->users[i] == uid)
			return;
	}
	if (about->user_count < EVENT_USERS_MAX)
		about->users[about->user_count] = uid;
	about->user_count++;
}

/* Asks those that are awake there to park, once for each lease that waits. */
static void tell_wanted(struct work *work, struct unpark *unpark, const struct head *head)
{
	const uint64_t now = clock_steady_ms();
	const uint64_t until_ms = clock_wall_ms() + less(unpark->until_ms, now);
	struct event_about about = {.for_users = true};
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		for (const struct lease *lease = version->leases; lease; lease = lease->next_of_version) {
			if (!lease->parked && !group_has(unpark, lease) && lease_device(lease) == head->device)
				add_user(&about, ((const struct session *)lease->holder)->peer.uid);
		}
	}
	if (unpark->told || head->lacking == 0 || about.user_count == 0)
		return;
	unpark->told = true;
	event_emit(work->ledger->events, &event_wanted,
		   &(struct wanted_event){
			   .device = head->device->id,
			   .bytes = head->lacking,
			   .version = &unpark->lease->version->id,
			   .since_ms = unpark->since_ms,
			   .until_ms = unpark->until_ms == UINT64_MAX ? NULL : &until_ms,
		   },
		   &about);
}

/* Returns whether room comes. */
static bool make_room(struct work *work, const struct need *need, struct unpark *unpark, struct head *head)
{
	const struct session *session = unpark->lease->holder;
	const struct tiers_need tiers = {
		.device = need->device,
		.bytes = sum_of(need),
		.version = unpark->lease->version,
		.no_context = need->weights == 0,
		.who = {.uid = session->peer.uid, .by_operator = session->kind == SESSION_ADMIN}};
	const uint64_t users =
		less(need->users, budget_left_for_users(need->device) + room_being_freed(work, need->device));
	char awake[512], detail[TEXT_BYTES_MAX + 1];

	no_room(need, unpark, NULL, -ENOSPC, &unpark->why);
	if (users == 0 && comes_by_itself(work, need))
		return true;
	/* What users lack for room beside an operator's version, no eviction for that version brings. */
	if ((users == 0 || !tiers.version->by_operator) && work->make_room &&
	    work->make_room(work, &tiers, &unpark->why) == 0)
		return true;
	head_measure(work, need, &tiers, need->users, head);
	tell_wanted(work, unpark, head);
	name_awake(work, need, unpark, awake, sizeof(awake));
	snprintf(detail, sizeof(detail), "%s%s%s%.300s", awake[0] ? "wait until one of these parks: " : "",
		 awake, awake[0] && unpark->why.detail[0] ? "; " : "", unpark->why.detail);
	no_room(need, unpark, detail, -ENOSPC, &unpark->why);
	return false;
}

/* The group's own versions that are there do not leave for those of it that are not. */
static void group_stay(const struct work *work, const struct unpark *last, int more)
{
	struct unpark *unpark = NULL;

	while ((unpark = group_next(work, last, unpark)))
		unpark->lease->version->waking += (uint64_t)more;
}

void heads_add(struct work *work, const struct needs *needs, struct unpark *unpark, struct heads *heads)
{
	bool comes = true, is_head = false;

	group_stay(work, unpark, 1);
	for (uint32_t i = 0; i < needs->count; i++) {
		const struct need *need = &needs->list[i];
		struct head head = {.device = need->device};

		if (sum_of(need) == 0 || head_on(heads, need->device) || heads->count == DEVICES_MAX)
			continue;
		is_head = true;
		if (need_fits(need))
			head.spare = less(budget_left(need->device), with_context(need));
		else
			comes &= make_room(work, need, unpark, &head);
		/* If it would have to wait even if everybody parked, those behind it need not. */
		if (head.lacking <= awake_on(work, need->device).all)
			heads->list[heads->count++] = head;
	}
	group_stay(work, unpark, -1);
	if (!is_head)
		error_set(&unpark->why, -ENOSPC, UNPARK_LATER, "others wait for room before %s@%s",
			  model_name(unpark->lease->version->model), unpark->lease->version->tag);
	else if (comes)
		error_set(&unpark->why, -ETIMEDOUT, UNPARK_LATER, "%s@%s waits for room that is being made",
			  model_name(unpark->lease->version->model), unpark->lease->version->tag);
}
