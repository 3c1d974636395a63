/* What a move is charged with before its first job begins. */
#include "host_copies.h"
#include "room.h"
#include "tiers_internal.h"

#include <errno.h>

int tiers_place(struct tier_move *move, uint64_t *ret_bytes, struct error *error)
{
	const struct device_table *devices = &move->work->ledger->devices;

	*ret_bytes = 0;
	if (!device_find(devices, DEVICE_HOST))
		return error_set(error, -ENODEV, "try again when a loader has started",
				 "no loader has reported the host's memory yet");
	for (uint32_t i = 0; i < move->part_count && !move->describes; i++) {
		const struct replica *replica = &move->version->replicas[i];
		struct relocated *memory = &move->memory[i];

		memory->onto = replica_place(replica, move->to, devices);
		memory->moves = memory->onto != replica->lies_on;
		memory->from_copy = memory->moves && memory->onto && replica->spares_on == memory->onto;
		if (memory->moves && memory->onto && !memory->from_copy)
			*ret_bytes += replica->bytes;
	}
	return 0;
}

/* ---- budgets ---- */

/* Bytes that are made for the part. */
static uint64_t part_needs(const struct tier_move *move, uint32_t i)
{
	return move->memory[i].from_copy ? 0 : move->version->replicas[i].bytes - move->memory[i].twin_bytes;
}

static uint64_t needed_on(const struct tier_move *move, const struct device *device)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->memory[i].moves && move->memory[i].onto == device)
			bytes += part_needs(move, i);
	}
	return bytes;
}

/* All parts together, so that the figures of a refusal are those of the version. */
static int check_budget(const struct tier_move *move, const struct device *device, struct error *error)
{
	const uint64_t bytes = needed_on(move, device);
	int r = budget_check_with_context(device, bytes, error);

	if (r == 0)
		r = budget_check(device, bytes, error);
	return r < 0 || move->version->by_operator ? r : budget_check_users(device, bytes, error);
}

static int charge_part(struct tier_move *move, uint32_t i, struct error *error)
{
	struct relocated *memory = &move->memory[i];
	struct version *version = move->version;
	int r;

	if (!memory->moves || !memory->onto)
		return 0;
	r = budget_charge(memory->onto, part_needs(move, i), &memory->charge, error);
	if (r < 0 || tier_has_memory(move->from) || version->by_operator)
		return r;
	/* A worker that parked had the version on the device before. What its owner has made since can't keep it from coming back. */
	return version->waking > 0
		       ? budget_adopt_user(&memory->charge, move->work->ledger->quota, version->owner, error)
		       : budget_charge_user(&memory->charge, move->work->ledger->quota, version->owner, error);
}

/* All checks come first: they are of all parts together. */
static int charge_memory(struct tier_move *move, struct error *error)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < move->part_count; i++) {
		if (move->memory[i].moves && move->memory[i].onto)
			r = check_budget(move, move->memory[i].onto, error);
	}
	for (uint32_t i = 0; r == 0 && i < move->part_count; i++)
		r = charge_part(move, i, error);
	return r;
}

/* ---- descriptors ---- */

/* The owner has paid for as many already, unless the memory comes from files. */
static int charge_fds(struct tier_move *move, struct error *error)
{
	uint64_t count = 0;
	int r;

	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->memory[i].moves && move->memory[i].onto && !move->memory[i].from_copy)
			count += replica_count_segments(&move->version->replicas[i]) -
				 move->memory[i].twin_count;
	}
	if (!tier_has_memory(move->from)) {
		r = version_charge_fds(move->version, count, error);
		if (r < 0)
			return r;
		move->owner_fds = count;
	}
	r = registry_take_fds(move->work->ledger->registry, count, error);
	if (r == 0)
		move->fds = count;
	return r;
}

/* ---- all ---- */

/* An attach of the owner is charged to the owner once. */
static int charge_user(struct tier_move *move, struct error *error)
{
	const struct version *version = move->version;
	uint64_t bytes = 0;

	if (!move->by_attach || (move->who.uid == version->owner && !version->by_operator))
		return 0;
	for (uint32_t i = 0; i < move->part_count; i++)
		bytes += move->memory[i].moves ? part_needs(move, i) : 0;
	return quota_charge_amount(move->work->ledger->quota, move->who.uid, QUOTA_BYTES, bytes, &move->user,
				   error);
}

void tiers_uncharge(struct tier_move *move)
{
	tiers_share_end(move);
	for (uint32_t i = 0; i < move->part_count; i++)
		budget_release(&move->memory[i].charge);
	quota_release(&move->user);
	moves_give_fds(move, false);
	version_uncharge_fds(move->version, move->owner_fds);
	move->owner_fds = 0;
}

int tiers_charge(struct tier_move *move, struct error *error)
{
	int r = tiers_share_find(move, error);

	if (r == 0)
		r = charge_user(move, error);
	if (r == 0)
		r = charge_memory(move, error);
	if (r == 0)
		r = charge_fds(move, error);
	if (r < 0)
		tiers_uncharge(move);
	else
		tiers_share_hold(move);
	return r;
}

int tiers_needed(struct work *work, struct version *version, struct tiers_needed *ret, struct error *error)
{
	struct tier_move *move = move_new(work, version, ON_DEVICE, NULL);
	uint64_t sum;
	int r;

	if (!move)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = tiers_place(move, &sum, error);
	if (r == 0)
		r = tiers_share_find(move, error);
	for (uint32_t i = 0; r == 0 && i < move->part_count; i++)
		ret->bytes[i] = move->memory[i].moves && move->memory[i].onto ? part_needs(move, i) : 0;
	tiers_share_end(move);
	move_free(move);
	return r;
}

/* ---- waiting ---- */

/* The first device that has no room; NULL: each has room for its own part of the memory. */
static struct device *device_lacking_room(const struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->memory[i].moves && move->memory[i].onto &&
		    check_budget(move, move->memory[i].onto, NULL) < 0)
			return move->memory[i].onto;
	}
	return NULL;
}

bool tiers_await_room(struct tier_move *move, struct error *error)
{
	struct work *work = move->work;
	const struct tiers_need need = {.device = device_lacking_room(move),
					.bytes = need.device ? needed_on(move, need.device) : 0,
					.version = move->version,
					.who = move->who};

	if (!need.device)
		return false;
	if (host_copies_give_way(work, need.device, need.bytes))
		return true;
	if (tier_is_resident(move->to)) {
		if (room_wait(work, need.device, need.bytes, 0, NULL) != ROOM_NEVER)
			return true;
		if (work->make_room && work->make_room(work, &need, error) == 0)
			return true;
	}
	room_explain(work, need.device, need.bytes, move->who.by_operator, error);
	return false;
}

void tiers_make_room(struct work *work, tiers_room_fn *room)
{
	work->make_room = room;
}
