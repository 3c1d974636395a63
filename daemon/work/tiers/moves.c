#include "moves.h"

#include "../../restart/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct tier_move *move_new(struct work *work, struct version *version, enum tier to,
			   const struct description *describes)
{
	const uint32_t parts = version->replica_count;
	struct tier_move *move = calloc(1, sizeof(*move) + parts * sizeof(move->parts[0]));

	if (!move)
		return NULL;
	move->memory = calloc((size_t)parts + 1, sizeof(*move->memory));
	move->failure = calloc(1, sizeof(*move->failure));
	move->part_count = parts;
	if (!move->memory || !move->failure)
		return move_free(move);
	for (uint32_t i = 0; i < parts; i++)
		move->parts[i].move = move;
	move->work = work;
	move->version = version;
	move->from = version->tier;
	move->to = to;
	snprintf(move->name, sizeof(move->name), "%s@%s", model_name(version->model), version->tag);
	if (!describes)
		return move;
	move->describes = description_new(describes);
	return move->describes ? move : move_free(move);
}

void move_list(struct tier_move *move)
{
	struct version *version = move->version;
	struct tier_move **link = &move->work->moves;

	while (*link)
		link = &(*link)->next;
	*link = move;
	version->move = move;
	version->moving_to = move->describes || move->copies ? version->tier : move->to;
	version->copying = move->copies;
	version->readers++;
}

void move_unlist(struct tier_move *move)
{
	struct tier_move **link = &move->work->moves;

	while (*link != move)
		link = &(*link)->next;
	*link = move->next;
	move->next = NULL;
	move->version->move = NULL;
	move->version->copying = false;
	move->version->moving_to = move->version->tier;
	move->version->readers--;
}

struct tier_move *move_free(struct tier_move *move)
{
	for (uint32_t i = 0; move->memory && i < move->part_count; i++)
		relocated_clear(&move->memory[i]);
	quota_release(&move->user);
	store_batch_free(move->removal);
	description_free(move->describes);
	free(move->failure);
	free(move->memory);
	free(move);
	return NULL;
}

void moves_clear(struct work *work)
{
	while (work->moves) {
		struct tier_move *move = work->moves;

		move_unlist(move);
		for (uint32_t i = 0; i < move->part_count; i++) { /* what has arrived is in no table yet */
			for (uint32_t k = 0; k < move->memory[i].count; k++) {
				if (move->memory[i].segments[k].last)
					close(move->memory[i].segments[k].segment->fd);
			}
		}
		move_free(move);
	}
}

/* ---- looking ---- */

bool move_has_job_for(const struct tier_move *move, uint32_t part)
{
	return move->describes || (move->memory[part].moves && !move->memory[part].from_copy);
}

unsigned moves_by_attach(const struct work *work, uid_t uid)
{
	unsigned count = 0;

	for (const struct tier_move *move = work->moves; move; move = move->next)
		count += move->by_attach && move->who.uid == uid;
	return count;
}

static uint64_t relocated_bytes_on(const struct relocated *part, const struct device *device)
{
	uint64_t bytes = part->charge.device == device ? part->charge.bytes : 0;

	for (uint32_t i = 0; i < part->count; i++) {
		const struct budget_charge *charge = &part->segments[i].segment->charge;

		bytes += charge->device == device ? charge->bytes : 0;
	}
	return bytes;
}

uint64_t moves_held(const struct work *work, const struct device *device)
{
	uint64_t bytes = 0;

	for (const struct tier_move *move = work->moves; move; move = move->next) {
		for (uint32_t i = 0; i < move->part_count; i++)
			bytes += relocated_bytes_on(&move->memory[i], device);
	}
	return bytes;
}

/* ---- ending ---- */

void moves_stop(struct work *work, const struct version *version, const struct error *why)
{
	struct tier_move *move = version->move;

	if (!move || move->error.code)
		return;
	move->error = *why;
	for (uint32_t i = 0; i < move->part_count; i++) {
		if (move->parts[i].job)
			job_cancel(work, move->parts[i].job, why);
	}
	work_later(work, LATER_MOVES);
}

void moves_stop_demotion(struct work *work, const struct version *version, const char *who)
{
	struct error why;

	if (version->moving_to <= version->tier)
		return;
	error_set(&why, -ECANCELED, NULL, "%s needs %s@%s on its devices", who, model_name(version->model),
		  version->tag);
	moves_stop(work, version, &why);
}

void moves_give_way(struct work *work)
{
	struct tier_move *move = work->moves;
	struct error why;

	while (move && !move->copies)
		move = move->next;
	if (!move)
		return;
	error_set(&why, -ECANCELED, NULL, "it gives way to other jobs");
	moves_stop(work, move->version, &why);
}

static bool move_awaits_room(const struct tier_move *move, const struct device *device)
{
	for (uint32_t i = 0; i < move->part_count && move->state == MOVE_WAITS; i++) {
		if (!device || move->memory[i].onto == device)
			return true;
	}
	return false;
}

bool moves_await_room(const struct work *work, const struct device *device)
{
	const struct tier_move *move = work->moves;

	while (move && !move_awaits_room(move, device))
		move = move->next;
	return move;
}
