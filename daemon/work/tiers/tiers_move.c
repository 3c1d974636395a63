/* A move from its first job to its end. */
#include "../../restart/keeping.h"
#include "tiers_internal.h"

#include <errno.h>
#include <string.h>

/* ---- storing ---- */

static void fail_with(struct tier_move *move, const struct error *error)
{
	if (!move->error.code)
		move->error = *error;
	tiers_give_up(move);
}

static void on_unstored(void *data, const struct error *removing)
{
	struct tier_move *move = data;
	struct work *work = move->work;

	move->not_removed = removing; /* the next start removes it */
	tiers_give_up(move);
	waiters_wake(work->clients, WAIT_STORED, NULL);
}

/* What is in the store leaves it, and then the move has failed. */
static void unstore(struct tier_move *move, const struct error *why)
{
	struct keeping *keeping = move->work->keeping;
	struct store_batch *batch = keeping_batch_new(keeping, move->fds);

	if (!move->error.code)
		move->error = *why;
	move->state = MOVE_UNSTORES;
	if (!batch) {
		on_unstored(move, &move->error);
		return;
	}
	for (uint32_t i = 0; i < move->part_count; i++) {
		for (uint32_t k = 0; k < move->memory[i].count; k++) {
			const struct segment_hold *hold = &move->memory[i].segments[k];

			if (hold->last) /* others are other versions' too */
				store_batch_add(batch, hold->segment->name, -1);
		}
	}
	store_batch_remove(batch, move->work->loop, on_unstored, move);
}

static void on_stored(void *data, const struct error *error)
{
	struct tier_move *move = data;
	struct work *work = move->work;
	struct error reason;

	if (error || tiers_commit(move, &reason) < 0)
		unstore(move, error ? error : &reason);
	else
		waiters_wake(work->clients, WAIT_STORED, NULL);
}

/* Makes move->removal, for the memory that the version leaves. Returns false if memory is out. */
static bool make_removal(struct tier_move *move)
{
	uint64_t old = 0;

	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->memory[i].moves)
			old += move->version->replicas[i].segment_count;
	}
	move->removal = keeping_batch_new(move->work->keeping, old);
	return move->removal;
}

/* Returns what is to be stored, and makes move->removal. NULL: out of memory. */
static struct store_batch *make_batches(struct tier_move *move)
{
	struct keeping *keeping = move->work->keeping;
	struct store_batch *batch = keeping_batch_new(keeping, move->fds);

	if (!make_removal(move) || !batch)
		return store_batch_free(batch);
	for (uint32_t i = 0; i < move->part_count; i++) {
		for (uint32_t k = 0; k < move->memory[i].count; k++) {
			struct segment_hold *hold = &move->memory[i].segments[k];

			if (hold->last)
				keeping_add(keeping, batch, &hold->segment->name, hold->segment->fd);
		}
	}
	return batch;
}

static void store(struct tier_move *move)
{
	struct store_batch *batch = make_batches(move);
	struct error error;

	if (!batch) {
		error_set(&error, -ENOMEM, NULL, "gpuwmd is out of memory");
		fail_with(move, &error);
		return;
	}
	move->state = MOVE_STORES;
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->parts[i].job)
			job_progress(move->work, move->parts[i].job, "storing", 0, 0);
	}
	store_batch_put(batch, move->work->loop, on_stored, move);
}

/* ---- arriving ---- */

static bool has_arrived(const struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move_has_job_for(move, i) && !move->parts[i].arrived)
			return false;
	}
	return true;
}

/* On the tier files, and where files are only compared, nothing arrives. */
static int move_take_part(struct tier_move *move, uint32_t i, struct part *part, struct error *error)
{
	const struct replica *replica = &move->version->replicas[i];
	struct relocated *memory = &move->memory[i];

	if (memory->moves && memory->onto)
		return relocated_take(replica, memory, part, error);
	if (part->segment_count > 0)
		return error_set(error, -EBADMSG, NULL, "%u segments came, and none were to come",
				 part->segment_count);
	if (memory->moves && replica_sizes(replica, &memory->sizes) < 0)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	return 0;
}

int tiers_arrived(struct work *work, struct job *job, struct part *part, struct error *error)
{
	struct tier_move *move = job_move_of(job);
	struct error failed;
	int r;

	if (!move || move->parts[job->replica].arrived)
		return error_set(error, -EINVAL, NULL,
				 "this loader's job belongs to no move, or to one that has ended");
	if (move->error.code) {
		*error = move->error;
		return error->code;
	}
	r = move_take_part(move, job->replica, part, error);
	if (r < 0) {
		moves_stop(work, move->version, error);
		return r;
	}
	move->parts[job->replica].arrived = true;
	job->made = true;
	if (!has_arrived(move))
		return 0;
	job->made = false; /* that depends on what follows */
	if (keeping_stores(work->keeping) && !move->describes)
		store(move);
	else if (tiers_commit(move, &failed) < 0)
		fail_with(move, &failed);
	return 0;
}

/* ---- beginning and going on ---- */

int tiers_start(struct tier_move *move, struct error *error)
{
	int r;

	move->state = MOVE_WAITS;
	if (tiers_share_awaits(move))
		return 0;
	r = tiers_charge(move, error);
	if (r == -ENOSPC && !move->copies && (tiers_await_room(move, error) || tiers_share_may_await(move)))
		return 0;
	if (r < 0)
		return r;
	r = tiers_make_jobs(move, error);
	if (r < 0) {
		tiers_uncharge(move);
		return r;
	}
	move->state = MOVE_COPIES;
	work_later(move->work, LATER_TURN);
	return 0;
}

/* A move onto host copies copies nothing: the store has their descriptors, and the state follows at once. */
static void tiers_conclude_empty(struct tier_move *move)
{
	struct error error;

	if (keeping_stores(move->work->keeping) && !make_removal(move)) {
		error_set(&error, -ENOMEM, NULL, "gpuwmd is out of memory");
		fail_with(move, &error);
	} else if (tiers_commit(move, &error) < 0) {
		fail_with(move, &error);
	}
}

bool tiers_settle_empty(struct tier_move *move)
{
	if (move->state != MOVE_COPIES || move->error.code)
		return false;
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move_has_job_for(move, i))
			return false;
	}
	tiers_conclude_empty(move);
	return true;
}

static bool has_jobs(const struct tier_move *move)
{
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->parts[i].job)
			return true;
	}
	return false;
}

/* True: the move is gone. */
static bool move_settle(struct tier_move *move)
{
	struct error error;

	if (move->state > MOVE_COPIES)
		return false;
	if (!move->error.code && move->state == MOVE_WAITS && tiers_start(move, &error) < 0)
		move->error = error;
	if (tiers_settle_empty(move))
		return true;
	if (!move->error.code || has_jobs(move))
		return false;
	tiers_give_up(move);
	return true;
}

/* Each end may begin and end others: the list is looked at anew. */
void tiers_settle(struct work *work)
{
	while (work_is_due(work, LATER_MOVES)) {
		struct tier_move *move = work->moves;

		work_done(work, LATER_MOVES);
		while (move && !move_settle(move))
			move = move->next;
		if (move)
			work_later(work, LATER_MOVES);
	}
}
