/* How a move ends. */
#include "../../../base/clock.h"
#include "../../../service/log.h"
#include "../../restart/keeping.h"
#include "../versions/claims.h"
#include "host_copies.h"
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

/* ---- it has moved ---- */

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
	const bool keeps =
		tier_has_memory(move->from) && tier_is_resident(move->to) && host_copies_keep(work, version);
	int r = check_unchanged(move, error);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < move->part_count; i++)
		move->memory[i].keeps_copy = move->memory[i].moves && keeps;
	if (describes)
		version_describe(version, move->describes);
	else if (move->copies)
		version_add_host_copy(version, move->memory);
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
	} else if (move->copies) {
		log_info("%s has a host copy now", move->name);
	} else {
		log_info("%s lies on %s now, not on %s: %s", move->name, tier_name(move->to),
			 tier_name(move->from), move->reason);
		versions_tell_moved(work, version, move->from, move->to, move->reason);
	}
	conclude_jobs(move);
	quota_release(&move->user);
	move_leave(move);
	move_wake_waiters(work, version);
	work_later(work, LATER_RESIDENTS);
	work_later(work, LATER_COPIES);
	work_later(work, LATER_HOST_COPIES);
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
	const char *what = move->describes         ? "described"
			   : move->copies          ? "copied to host memory"
			   : move->to > move->from ? "demoted"
						   : "promoted";

	if (move->error.code == -ECANCELED)
		log_info("%s is not %s: %s", move->name, what, move->error.message);
	else
		log_warning("%s is not %s: %s", move->name, what, move->error.message);
	work_later(work, LATER_RESTORE);
	if (move->copies) {
		version->copy_again_ms = clock_wall_ms() + DEMOTE_AGAIN_MS;
		work_later(work, LATER_ROOM); /* who waits for this version to leave */
	} else if (move->to > move->from && move->error.code != -ECANCELED)
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
		move_keep_charge(move, i);
	move_close_parts(move);
	move_wake_waiters(work, version);
	versions_free_unused(work, version);
}
