/* Holding blocks, by their keys and by their numbers. */
#include "blocks.h"

#include "../../base/clock.h"

#include <errno.h>

/* A block may be evicted between the look at its key and the hold, and the key may have another one by then. */
#define LOOKUPS 4

/* ---- waiting for who fills -------------------------------------------------------- */

/* Whether gpuwmd would free the block if the process that fills it died. */
static int check_writer(const struct blocks *blocks, uint32_t number, struct error *error)
{
	const struct control_head *head = blocks->region->control.head;
	const uint64_t word = atomic_load(&blocks->shared.words[number]);
	const unsigned writer = block_word_writer(word);

	if (block_word_state(word) != BLOCK_OWNED ||
	    (writer < REGION_USERS_MAX && atomic_load(&head->users[writer].generation) != 0))
		return 0;
	return error_set(error, -EUCLEAN, "remove the region, and make another one",
			 "the control memory of region %s says that block %u is filled by user %u, which there "
			 "is not",
			 region_title(blocks->region), number, writer);
}

/* Waits for the block, which is OWNED. Returns 0 if it is worth looking again, and -EAGAIN, without an error text, if the deadline has
 * passed. */
static int block_wait_for_writer(const struct blocks *blocks, uint32_t number, uint32_t seen, int64_t deadline,
				 struct error *error)
{
	int r = check_writer(blocks, number, error);

	if (r < 0)
		return r;
	if (!blocks_sleep(blocks, seen, deadline))
		return -EAGAIN;
	return region_running(blocks->region, error);
}

/* ---- by keys ---------------------------------------------------------------------- */

/* One call of gpuwm_blocks_hold. */
struct holding {
	struct blocks *blocks;
	const struct gpuwm_block_key *keys;
	size_t count, held;
	struct gpuwm_block *ret_blocks;
	uint64_t now; /* the time of the first key's wish */
	uint32_t number; /* the block that somebody fills */
};

/* Under the lock. Returns 0, -EAGAIN (somebody fills it), -ESTALE (there is no such block) or -EUCLEAN. */
static int hold_key(struct holding *h)
{
	const struct gpuwm_block_key *key = &h->keys[h->held];
	struct blocks *blocks = h->blocks;
	struct block_at at;
	int r = -ESTALE;

	for (unsigned looks = 0; r == -ESTALE && looks < LOOKUPS; looks++) {
		struct gpuwm_block block;

		if (blocks_index_find(&blocks->shared, key, &at) == BLOCK_FREE)
			return -ESTALE;
		block = (struct gpuwm_block){at.number, block_word_generation(at.word)};
		h->number = at.number;
		blocks_touch(blocks, at.number, h->now - h->held);
		h->ret_blocks[h->held] = block;
		r = blocks_hold_one(blocks, block);
	}
	return r;
}

/* Returns 0 if all are held; else as hold_key. */
static int hold_on(struct holding *h)
{
	int r = 0;

	pthread_mutex_lock(&h->blocks->lock);
	while (r == 0 && h->held < h->count) {
		blocks_index_expect(&h->blocks->shared, h->keys, h->count, h->held);
		r = hold_key(h);
		h->held += r == 0;
	}
	pthread_mutex_unlock(&h->blocks->lock);
	return r;
}

static int holding_wait(struct holding *h, int64_t wait_ms, struct error *error)
{
	const int64_t deadline = clock_deadline(wait_ms);
	uint32_t seen;
	int r;

	for (;;) {
		seen = atomic_load(&h->blocks->freed->rung);
		r = hold_on(h);
		if (r == 0 || r == -ESTALE)
			return 0;
		r = r == -EAGAIN ? block_wait_for_writer(h->blocks, h->number, seen, deadline, error)
				 : error_set(error, r, "remove the region, and make another one",
					     "the word of block %u of region %s changes all the time",
					     h->number, region_title(h->blocks->region));
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
	}
}

int gpuwm_blocks_hold(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		      int64_t wait_ms, struct gpuwm_block *ret_blocks, size_t *ret_held)
{
	struct holding h = {.keys = keys, .count = count, .ret_blocks = ret_blocks};
	struct error error;
	int r = blocks_running(region, keys, count, &h.blocks, &error);

	if (r < 0)
		return client_fail(&error);
	h.now = blocks_wish(h.blocks, count);
	r = holding_wait(&h, wait_ms, &error);
	if (r < 0) {
		blocks_let_go(h.blocks, ret_blocks, h.held, NULL);
		return client_fail(&error);
	}
	*ret_held = h.held;
	return 0;
}

/* ---- by numbers --------------------------------------------------------------------- */

static int not_there(const struct blocks *blocks, struct gpuwm_block block, int r, struct error *error)
{
	char who[REGION_USER_TEXT];

	if (r == -EAGAIN) {
		region_user_text(blocks->region,
				 block_word_writer(atomic_load(&blocks->shared.words[block.number])), who);
		return error_set(error, r, "wait for longer",
				 "block %u of region %s is still being filled by %s", block.number,
				 region_title(blocks->region), who);
	}
	if (r == -EUCLEAN)
		return error_set(error, r, "remove the region, and make another one",
				 "the word of block %u of region %s changes all the time", block.number,
				 region_title(blocks->region));
	return error_set(error, r, "compute the bytes", "use %u of block %u of region %s is not there any more",
			 block.generation, block.number, region_title(blocks->region));
}

static int hold_this(struct blocks *blocks, struct gpuwm_block block, int64_t deadline, struct error *error)
{
	uint32_t seen;
	int r;

	for (;;) {
		seen = atomic_load(&blocks->freed->rung);
		pthread_mutex_lock(&blocks->lock);
		r = block.number < blocks->shared.count ? blocks_hold_one(blocks, block) : -ESTALE;
		pthread_mutex_unlock(&blocks->lock);
		if (r == 0)
			return 0;
		if (r != -EAGAIN)
			return not_there(blocks, block, r, error);
		r = block_wait_for_writer(blocks, block.number, seen, deadline, error);
		if (r < 0)
			return r == -EAGAIN ? not_there(blocks, block, r, error) : r;
	}
}

int gpuwm_blocks_hold_these(struct gpuwm_region *region, const struct gpuwm_block *list, size_t count,
			    int64_t wait_ms)
{
	const int64_t deadline = clock_deadline(wait_ms);
	struct blocks *blocks;
	struct error error;
	uint64_t now;
	int r = blocks_running(region, list, count, &blocks, &error);

	if (r < 0)
		return client_fail(&error);
	now = blocks_wish(blocks, count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (list[i].number == GPUWM_BLOCK_NONE)
			continue;
		r = hold_this(blocks, list[i], deadline, &error);
		if (r == 0)
			blocks_touch(blocks, list[i].number, now - i);
		else
			blocks_let_go(blocks, list, i, NULL);
	}
	return r < 0 ? client_fail(&error) : 0;
}
