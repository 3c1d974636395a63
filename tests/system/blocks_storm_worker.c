/* A process in the storm over blocks. */
#include "blocks_storm.h"

#include <unistd.h>

#define STAY_PERCENT 10
#define STAY_US 2000

void blocks_at(struct blocks_worker *w, enum blocks_at at)
{
	atomic_store(&w->told->at, at);
	if (!dice_percent(&w->actor.dice, STAY_PERCENT))
		return;
	atomic_store(&w->told->stays, true);
	pause_us(dice_throw(&w->actor.dice, STAY_US));
	atomic_store(&w->told->stays, false);
}

void blocks_settle(struct blocks_worker *w)
{
	storm_stream_wait(w->actor.stream);
	while (w->queued_count > 0)
		blocks_published(w, &w->queued[--w->queued_count]);
	while (w->read_count > 0) {
		const struct blocks_copy *copy = &w->reads[--w->read_count];

		CHILD_ASSERT(blocks_bytes_are(copy->bytes, &copy->use, NULL));
	}
}

/* ---- what to do ---------------------------------------------------------- */

static unsigned mood(const struct storm_actor *a)
{
	return atomic_load(&((const struct blocks_worker *)a)->board->hoard) ? BLOCKS_HOARDING : BLOCKS_SHARING;
}

static void acted(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;

	atomic_store(&w->told->filling, 0);
	blocks_at(w, AT_REST);
}

static void park(struct storm_actor *a)
{
	blocks_settle((struct blocks_worker *)a);
}

int blocks_worker_main(int argc, char **argv)
{
	static const struct storm_part part = {
		.operations = blocks_operations, .mood = mood, .acted = acted, .park = park};
	static struct blocks_worker w;

	storm_actor_begin(&w.actor, argc, argv, sizeof *w.board);
	w.board = (struct blocks_board *)w.actor.board;
	w.told = &w.board->told[w.actor.number];
	atomic_store(&w.told->pid, getpid());
	w.staging = storm_pinned_new((BLOCKS_OWNED + BLOCKS_HELD) * BLOCKS_BYTES);
	blocks_open(&w);
	storm_actor_work(&w.actor, &part);
	blocks_drop_all(&w);
	CHILD_ASSERT(gpuwm_region_close(w.region) == 0);
	storm_actor_end(&w.actor);
	return 0;
}
