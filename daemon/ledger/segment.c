#include "registry.h"

#include <stdlib.h>

struct segment *segment_new(int fd, uint64_t bytes, uint64_t name)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	if (segment)
		*segment = (struct segment){.fd = fd, .bytes = bytes, .name = name};
	return segment;
}

void segment_free_unused(struct segment *segment)
{
	if (segment && segment->uses == 0)
		free(segment);
}

/* What no version holds, and a revoked lease may map. */
static bool is_still_mapped(const struct segment *segment)
{
	return segment->mapped > 0 && !segment->holds;
}

static void count_mapped(struct segment *segment, bool before)
{
	struct device *device = segment->charge.device;
	bool now = is_still_mapped(segment);

	if (now && !before)
		device->still_mapped += segment->charge.bytes;
	else if (before && !now)
		device->still_mapped -= segment->charge.bytes;
}

void segment_hold(struct segment_hold *hold, struct segment *segment, struct version *version)
{
	*hold = (struct segment_hold){
		.segment = segment, .version = version, .next = segment->holds, .link = &segment->holds};
	if (hold->next)
		hold->next->link = &hold->next;
	segment->holds = hold;
	segment->uses++;
}

bool segment_is_spare(const struct segment *segment)
{
	const struct segment_hold *hold = segment->holds;

	while (hold && hold->spare)
		hold = hold->next;
	return segment->holds && !hold;
}

void segment_let_go(struct segment_hold *hold)
{
	bool before = is_still_mapped(hold->segment);

	if (!hold->link)
		return;
	*hold->link = hold->next;
	if (hold->next)
		hold->next->link = hold->link;
	hold->next = NULL;
	hold->link = NULL;
	hold->last = !hold->segment->holds;
	count_mapped(hold->segment, before);
}

void segment_drop(struct segment *segment)
{
	if (--segment->uses > 0)
		return;
	budget_release(&segment->charge);
	free(segment);
}

bool segment_is_shared(const struct segment *segment)
{
	return segment->holds && segment->holds->next;
}

/* ---- shared charges ---- */

static struct shared_charge *shared_charge_make(struct budget_charge *charge, uint32_t segments)
{
	struct shared_charge *shared = calloc(1, sizeof(*shared) + segments * sizeof(shared->segments[0]));

	if (!shared)
		return NULL;
	shared->charge = *charge;
	shared->uses = 1;
	shared->segment_count = segments;
	*charge = (struct budget_charge){0};
	return shared;
}

struct shared_charge *shared_charge_new(struct budget_charge *charge)
{
	return shared_charge_make(charge, 0);
}

struct shared_charge *shared_charge_of_part(struct replica *part)
{
	struct shared_charge *shared = shared_charge_make(&part->charge, part->segment_count);

	for (uint32_t i = 0; shared && i < part->segment_count; i++) {
		shared->segments[i] = part->segments[i].segment;
		shared->segments[i]->uses++;
	}
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
	if (!shared || --shared->uses > 0)
		return NULL;
	for (uint32_t i = 0; i < shared->segment_count; i++)
		segment_drop(shared->segments[i]);
	budget_release(&shared->charge);
	free(shared);
	return NULL;
}

bool shared_charge_is_paid_by(const struct shared_charge *shared, uid_t uid)
{
	const struct quota_user *user = shared->charge.quota.user;

	for (uint32_t i = 0; !user && i < shared->segment_count; i++)
		user = shared->segments[i]->charge.quota.user;
	return !user || quota_user_uid(user) == uid;
}

void shared_charge_repay(struct shared_charge *shared, const uid_t *uid)
{
	budget_repay(&shared->charge, uid, NULL);
	for (uint32_t i = 0; i < shared->segment_count; i++) {
		if (!shared->segments[i]->holds)
			budget_repay(&shared->segments[i]->charge, uid, NULL);
	}
}

/* One more, or one less, that maps each of the segments. */
static void map_all(struct shared_charge *shared, int more)
{
	for (uint32_t i = 0; i < shared->segment_count; i++) {
		struct segment *segment = shared->segments[i];
		bool before = is_still_mapped(segment);

		segment->mapped += (unsigned)more;
		count_mapped(segment, before);
	}
}

/* A charge that has ended, and is mapped from now on, or no longer. */
static void count_ended(const struct shared_charge *shared, int more)
{
	struct device *device = shared->charge.device;

	if (shared->of_none && more > 0)
		device->still_mapped += shared->charge.bytes;
	else if (shared->of_none)
		device->still_mapped -= shared->charge.bytes;
}

struct shared_charge *shared_charge_map(struct shared_charge *shared)
{
	if (shared && shared->mapped++ == 0) {
		map_all(shared, 1);
		count_ended(shared, 1);
	}
	return shared_charge_use(shared);
}

struct shared_charge *shared_charge_unmap(struct shared_charge *shared)
{
	if (shared && --shared->mapped == 0) {
		map_all(shared, -1);
		count_ended(shared, -1);
	}
	return shared_charge_drop(shared);
}

struct shared_charge *shared_charge_leave(struct shared_charge *shared)
{
	shared->of_none = true;
	if (shared->mapped > 0)
		count_ended(shared, 1);
	return shared_charge_drop(shared);
}
