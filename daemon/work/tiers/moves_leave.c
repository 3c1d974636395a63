/* Memory that leaves a version: out of the fd store, closed, and its charges returned. */
#include "../../../service/log.h"
#include "../../ledger/closing.h"
#include "../../restart/keeping.h"
#include "../loaders/loader.h"
#include "../versions/leases.h"
#include "tiers_internal.h"

void moves_give_fds(struct tier_move *move, bool stored)
{
	if (!stored)
		registry_give_fds(move->work->ledger->registry, move->fds);
	move->fds = 0;
}

/* ---- closing memory ---- */

static void on_part_closed(void *data)
{
	struct move_part *part = data;
	struct tier_move *move = part->move;
	struct work *work = move->work;

	departures_closed(part);
	work_later(work, LATER_ROOM);
	work_later(work, LATER_REPORT);
	if (--move->left > 0)
		return;
	moves_give_fds(move, move->not_removed);
	move_free(move);
}

/* The charge of a part's memory returns when the memory is closed, and when no process is left that may have it mapped. */
void move_keep_charge(struct tier_move *move, uint32_t i)
{
	struct version *version = move->version;
	struct relocated *memory = &move->memory[i];
	struct replica part = {
		.segments = memory->segments, .segment_count = memory->count, .charge = memory->charge};
	struct shared_charge *shared = shared_charge_of_part(&part);

	memory->charge = part.charge;
	loader_pool_keep(move->work->loaders, &version->id, i, shared);
	if (!move->error.code && move->from != move->to) /* nobody leases a host copy */
		revoked_keep(version, i, shared);
	shared_charge_drop(shared);
}

/* The last of them frees the move. */
void move_close_parts(struct tier_move *move)
{
	move->left = move->part_count;
	for (uint32_t i = move->part_count; i-- > 0;) {
		struct relocated *memory = &move->memory[i];
		struct replica closed = {
			.index = {.fd = -1}, .segments = memory->segments, .segment_count = memory->count};

		memory->segments = NULL;
		memory->count = 0;
		closing_part(move->work->loop, &closed, NULL, on_part_closed, &move->parts[i]);
	}
}

/* ---- out of the store ---- */

/* A service manager that does not answer keeps them: the next gpuwmd finds that they belong to nothing. */
static void on_removed(void *data, const struct error *error)
{
	struct tier_move *move = data;

	if (error) {
		log_error("old memory of %s may stay in the fd store until the next start: %s (%s)", move->name,
			  error->message, error->detail);
		move->not_removed = true;
	}
	departures_await(move, move_close_parts);
}

static uint64_t list_old(struct tier_move *move)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < move->part_count; i++) {
		for (uint32_t k = 0; k < move->memory[i].count; k++) {
			const struct segment_hold *hold = &move->memory[i].segments[k];

			if (!hold->last)
				continue;
			count++;
			if (move->removal)
				store_batch_add(move->removal, hold->segment->name, -1);
		}
	}
	return count;
}

/* What leaves the store is counted there until it has. */
void move_leave(struct tier_move *move)
{
	struct registry *registry = move->work->ledger->registry;
	struct store_batch *removal = move->removal;

	departures_begin(move);
	moves_give_fds(move, false);
	move->fds = list_old(move);
	registry_adopt_fds(registry, move->fds);
	if (!tier_has_memory(move->to))
		version_uncharge_fds(move->version, move->fds);
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->memory[i].moves)
			move_keep_charge(move, i);
	}
	move->state = MOVE_LEAVES;
	move->removal = NULL;
	if (removal)
		store_batch_remove(removal, move->work->loop, on_removed, move);
	else
		on_removed(move, NULL);
}
