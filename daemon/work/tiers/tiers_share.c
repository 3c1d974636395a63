/* What a move takes from versions that lie where it goes, instead of memory of its own: segments that a load has once found to be the
 * same (struct origin). A loader compares their digests with the index of the version that moves. */
#include "../../../base/clock.h"
#include "../versions/sharing.h"
#include "../versions/versions.h"
#include "tiers_internal.h"

#include <errno.h>

static bool may_share(void *data, const struct version *twin)
{
	const struct tier_move *move = data;

	return sharing_may(move->work, twin, move->version);
}

int tiers_share_find(struct tier_move *move, struct error *error)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		struct relocated *memory = &move->memory[i];

		if (memory->moves && memory->onto && !memory->from_copy &&
		    relocated_find_twins(move->version, i, memory, may_share, move) < 0)
			return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	return 0;
}

void tiers_share_hold(struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++)
		relocated_hold_twins(&move->memory[i]);
}

void tiers_share_end(struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		struct relocated *memory = &move->memory[i];
		uint32_t left = memory->holds_twins ? memory->twin_count : 0;

		relocated_let_go_of_twins(memory);
		for (uint32_t k = 0; left > 0; k++) {
			if (!memory->twins[k].version)
				continue;
			versions_free_unused(move->work, memory->twins[k].version);
			left--;
		}
	}
}

int tiers_share_check(const struct tier_move *move, struct error *error)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		const struct relocated *memory = &move->memory[i];

		for (uint32_t k = 0, left = memory->twin_count; left > 0; k++) {
			const struct relocated_twin *twin = &memory->twins[k];

			if (!twin->version)
				continue;
			left--;
			if (twin->segment->damaged || !sharing_may(move->work, twin->version, move->version))
				return error_set(error, -EAGAIN, "try again: it then gets memory of its own",
						 "%s may not share segments of %s@%s any more: %s", move->name,
						 model_name(twin->version->model), twin->version->tag,
						 twin->segment->damaged ? "they are damaged"
									: "other rules count now");
		}
	}
	return 0;
}

/* ---- waiting ---- */

static bool move_has_twin(const struct tier_move *move, const struct version *version)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		const struct relocated *memory = &move->memory[i];

		for (uint32_t k = 0, left = memory->holds_twins ? memory->twin_count : 0; left > 0; k++) {
			if (memory->twins[k].version == version)
				return true;
			left -= memory->twins[k].version != NULL;
		}
	}
	return false;
}

const struct tier_move *tiers_sharing(const struct work *work, const struct version *version)
{
	const struct tier_move *move = work->moves;

	while (move && !move_has_twin(move, version))
		move = move->next;
	return move;
}

/* The other one's memory will be there. */
static bool brings_twins(const struct tier_move *other, const struct tier_move *move)
{
	return other != move && !other->error.code && other->state != MOVE_WAITS && !other->describes &&
	       other->to == move->to && version_is_akin(move->version, other->version) &&
	       sharing_may(move->work, other->version, move->version);
}

/* A node that has a version begins to send it within some 100 ms. If none does, a loader asks all of them for 90 s. */
#define NODES_SILENT_MS 3000

/* Returns whether nodes are to bring the version, and have brought nothing for a while. A job without a loader waits for one, as the job of
 * another move would. */
static bool is_silent(const struct tier_move *move)
{
	const uint64_t now = clock_steady_ms();

	if (tier_has_memory(move->from) || description_has_files(move->version->description))
		return false;
	for (uint32_t i = 0; i < move->part_count; i++) {
		const struct job *job = move->parts[i].job;

		if (job && job->watched_ms && now - job->watched_ms >= NODES_SILENT_MS)
			return true;
	}
	return false;
}

static void on_silent(uv_timer_t *timer)
{
	work_later(timer->data, LATER_MOVES);
}

static const struct tier_move *find_bringing(const struct tier_move *move, bool silent_too)
{
	const struct tier_move *other = move->work->moves;

	while (other && !(brings_twins(other, move) && (silent_too || !is_silent(other))))
		other = other->next;
	return other;
}

bool tiers_share_may_await(const struct tier_move *move)
{
	return tier_is_resident(move->to) && find_bringing(move, true);
}

bool tiers_share_awaits(const struct tier_move *move)
{
	uv_timer_t *timer = &move->work->moves_timer;

	if (!tier_is_resident(move->to))
		return false;
	if (tiers_sharing(move->work, move->version))
		return true;
	if (!find_bringing(move, false))
		return false;
	if (!uv_is_active((uv_handle_t *)timer))
		uv_timer_start(timer, on_silent, NODES_SILENT_MS, 0);
	return true;
}
