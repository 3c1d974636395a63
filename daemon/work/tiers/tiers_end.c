/* How a move ends. */
#include "../../../base/clock.h"
#include "../../../service/log.h"
#include "../../ledger/closing.h"
#include "../../restart/keeping.h"
#include "../versions/claims.h"
#include "../loaders/loader.h"
#include "../versions/leases.h"
#include "tiers_internal.h"
#include "../versions/versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Those who wait for the version, in either way. */
static void move_wake_waiters(struct work *work, const struct version *version)
{
	waiters_wake(work->clients, WAIT_READY, version);
	claims_concluded(work, version);
}

/* ---- closing memory ---- */

static void on_part_closed(void *data)
{
	struct tier_move *move = data;
	struct work *work = move->work;

	work_later(work, LATER_ROOM);
	work_later(work, LATER_REPORT);
	if (--move->left > 0)
		return;
	tiers_give_fds(move, move->not_removed);
	move_free(move);
}

/* The charge of a part's memory returns when the memory is closed, and when no process is left that may have it mapped. */
static void keep_charge(struct tier_move *move, uint32_t i)
{
	struct version *version = move->version;
	struct relocated *memory = &move->memory[i];
	struct replica part = {
		.segments = memory->segments, .segment_count = memory->count, .charge = memory->charge};
	struct shared_charge *shared = shared_charge_of_part(&part);

	memory->charge = part.charge;
	loader_pool_keep(move->work->loaders, &version->id, i, shared);
	if (!move->error.code)
		revoked_keep(version, i, shared);
	shared_charge_drop(shared);
}

/* The last of them frees the move. */
static void close_parts(struct tier_move *move)
{
	move->left = move->part_count;
	for (uint32_t i = move->part_count; i-- > 0;) {
		struct relocated *memory = &move->memory[i];
		struct replica closed = {
			.index = {.fd = -1}, .segments = memory->segments, .segment_count = memory->count};

		memory->segments = NULL;
		memory->count = 0;
		closing_part(move->work->loop, &closed, NULL, on_part_closed, move);
	}
}

/* ---- it has moved ---- */

/* A service manager that does not answer keeps them: the next gpuwmd finds that they belong to nothing. */
static void on_removed(void *data, const struct error *error)
{
	struct tier_move *move = data;

	if (error) {
		log_error("old memory of %s may stay in the fd store until the next start: %s (%s)", move->name,
			  error->message, error->detail);
		move->not_removed = true;
	}
	close_parts(move);
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
static void move_leave_store(struct tier_move *move)
{
	struct registry *registry = move->work->ledger->registry;
	struct store_batch *removal = move->removal;

	tiers_give_fds(move, false);
	move->fds = list_old(move);
	registry_adopt_fds(registry, move->fds);
	if (!tier_has_memory(move->to))
		version_uncharge_fds(move->version, move->fds);
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->memory[i].moves)
			keep_charge(move, i);
	}
	move->state = MOVE_LEAVES;
	move->removal = NULL;
	if (removal)
		store_batch_remove(removal, move->work->loop, on_removed, move);
	else
		on_removed(move, NULL);
}

/* Returns the part's job, which no longer belongs to the move. NULL: it has none. */
static struct job *take_job(struct tier_move *move, uint32_t part)
{
	struct job *job = move->parts[part].job;

	move->parts[part].job = NULL;
	if (job)
		job_move_forget(job);
	return job;
}

/* The jobs are done, however their loaders end. */
static void conclude_jobs(struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		struct job *job = take_job(move, i);

		if (!job)
			continue;
		job->made = true;
		if (!job->loader)
			job_end(move->work, job, NULL);
	}
}

static int check_unchanged(const struct tier_move *move, struct error *error)
{
	const struct version *version = move->version;
	int r = 0;

	if (move->error.code) {
		*error = move->error;
		return error->code;
	}
	if (tier_is_resident(move->from))
		r = version_check_sound(version, error);
	for (uint32_t i = 0; r == 0 && i < move->part_count; i++) {
		if (move->memory[i].moves && move->memory[i].onto)
			r = device_check_there(move->memory[i].onto, error);
	}
	return r < 0 ? r : tiers_share_check(move, error);
}

int tiers_commit(struct tier_move *move, struct error *error)
{
	struct work *work = move->work;
	struct version *version = move->version;
	const bool describes = move->describes;
	int r = check_unchanged(move, error);

	if (r < 0)
		return r;
	if (describes)
		version_describe(version, move->describes);
	else
		version_relocate(version, move->to, move->memory);
	free(version->promotion_error);
	version->promotion_error = NULL;
	move_unlist(move);
	tiers_share_end(move);
	work_later(work, LATER_MOVES); /* for those that wait for this one */
	work_later(work, LATER_UNPARKS);
	work_later(work, LATER_RESTORE);
	keeping_save(work->keeping);
	if (describes) {
		log_info("%s is described by %s", move->name, version->description->source);
		move->describes = NULL; /* the version's */
	} else {
		log_info("%s lies on %s now, not on %s: %s", move->name, tier_name(move->to),
			 tier_name(move->from), move->reason);
		versions_tell_moved(work, version, move->from, move->to, move->reason);
	}
	conclude_jobs(move);
	quota_release(&move->user);
	move_leave_store(move);
	move_wake_waiters(work, version);
	work_later(work, LATER_RESIDENTS);
	work_later(work, LATER_COPIES);
	versions_lose_new(work, version);
	versions_free_unused(work, version);
	return 0;
}

/* ---- it stays ---- */

static void tell_jobs(struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		struct job *job = take_job(move, i);

		if (!job)
			continue;
		if (!job->loader)
			job_end(move->work, job, &move->error);
		else
			job_set_error(job, &move->error);
	}
}

void tiers_give_up(struct tier_move *move)
{
	struct work *work = move->work;
	struct version *version = move->version;
	const char *what = move->describes ? "described" : move->to > move->from ? "demoted" : "promoted";

	if (move->error.code == -ECANCELED)
		log_info("%s is not %s: %s", move->name, what, move->error.message);
	else
		log_warning("%s is not %s: %s", move->name, what, move->error.message);
	work_later(work, LATER_RESTORE);
	if (move->to > move->from && move->error.code != -ECANCELED)
		version->demote_again_ms = clock_wall_ms() + DEMOTE_AGAIN_MS;
	if (tier_is_resident(move->to) && !move->describes) { /* for those who wait for the promotion */
		*move->failure = move->error;
		free(version->promotion_error);
		version->promotion_error = move->failure;
		move->failure = NULL;
	}
	move_unlist(move);
	tiers_share_end(move);
	work_later(work, LATER_UNPARKS);
	work_later(work, LATER_MOVES);
	tell_jobs(move);
	version_uncharge_fds(version, move->owner_fds);
	quota_release(&move->user);
	for (uint32_t i = 0; i < move->part_count; i++)
		keep_charge(move, i);
	close_parts(move);
	move_wake_waiters(work, version);
	versions_free_unused(work, version);
}
