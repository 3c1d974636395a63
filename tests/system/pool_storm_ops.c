/* What processes do in the storm over a pool. */
#include "pool_storm.h"

static bool some(struct pool_worker *w, unsigned percent)
{
	return dice_percent(&w->actor.dice, percent);
}

static struct pool_held removed(struct pool_worker *w, struct pool_held *list, unsigned *count)
{
	const unsigned at = (unsigned)dice_throw(&w->actor.dice, *count);
	const struct pool_held held = list[at];

	list[at] = list[--*count];
	return held;
}

/* ---- the owner ----------------------------------------------------------- */

static int act_alloc(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	const uint64_t most = some(w, 70) ? KB(16) : POOL_LARGEST;
	const uint64_t bytes = 8 * (1 + dice_throw(&w->actor.dice, most / 8));
	const int64_t wait_ms = some(w, 70) ? 0 : (int64_t)dice_throw(&w->actor.dice, 3);
	struct pool_held *held = &w->filling[w->filling_count];
	int r;

	if (w->filling_count == POOL_HELD)
		return -EBUSY;
	r = MAY_REFUSE(gpuwm_chunk_alloc(w->pool, bytes, wait_ms, &held->chunk), EAGAIN);
	if (r < 0)
		return r;
	CHILD_ASSERT(gpuwm_chunk_bytes(held->chunk) == bytes);
	held->note.key = dice_throw(&w->actor.dice, UINT64_MAX);
	pool_fill(held->chunk, held->note.key);
	w->filling_count++;
	return 0;
}

static void post(struct pool_posts *posts, const struct pool_note *note)
{
	const uint64_t end = atomic_load(&posts->end);

	if (end - atomic_load(&posts->first) >= POOL_POSTS)
		return;
	posts->notes[end % POOL_POSTS] = *note;
	atomic_store(&posts->end, end + 1);
}

/* Names workers, and has seats for others. Returns to which workers the token is to be sent. */
static unsigned choose_readers(struct pool_worker *w, struct gpuwm_readers *readers)
{
	unsigned to = 0;

	*readers = (struct gpuwm_readers){0};
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		const struct storm_told *told = &w->actor.board->told[i];

		if (atomic_load(&told->state) < STORM_WORKING || !some(w, 25))
			continue;
		readers->named |= 1u << atomic_load(&told->slot);
		to |= 1u << i;
	}
	if (readers->named == 0 || some(w, 30))
		readers->others = 1 + (uint32_t)dice_throw(&w->actor.dice, 3);
	/* Sometimes more than there are seats. */
	for (unsigned i = 0; i < readers->others; i++)
		to |= 1u << dice_throw(&w->actor.dice, POOL_WORKERS);
	return to;
}

static void send_token(struct pool_worker *w, const struct pool_note *note, unsigned to, unsigned others)
{
	w->sent[w->sent_count++ % POOL_POSTS] = *note;
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		if (to >> i & 1)
			post(&w->board->posts[i], note);
	}
	if (others > 0 && some(w, 50))
		MAY_REFUSE(gpuwm_queue_put(w->queue, &note->key, sizeof note->key, &note->token, 1, 0), EAGAIN,
			   EBUSY);
}

static int act_offer(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct gpuwm_readers readers;
	struct pool_held held;
	unsigned to;
	int r;

	if (w->filling_count == 0)
		return -EBUSY;
	held = removed(w, w->filling, &w->filling_count);
	CHILD_ASSERT(pool_holds(held.chunk, held.note.key));
	to = choose_readers(w, &readers);
	if (w->actor.stream && some(w, 50))
		r = gpuwm_chunk_offer_in_stream(held.chunk, &readers, w->actor.stream, &held.note.token);
	else
		r = gpuwm_chunk_offer(held.chunk, &readers, &held.note.token);
	if (MAY_REFUSE(r, ESRCH) < 0) {
		w->filling[w->filling_count++] = held;
		return r;
	}
	send_token(w, &held.note, to, readers.others);
	if (some(w, 50))
		storm_stream_wait(w->actor.stream);
	return 0;
}

static int act_discard(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;

	if (w->filling_count == 0)
		return -EBUSY;
	CHILD_ASSERT(gpuwm_chunk_discard(removed(w, w->filling, &w->filling_count).chunk) == 0);
	return 0;
}

static const struct pool_note *one_of(struct pool_worker *w, const struct pool_note *notes, uint64_t count)
{
	return &notes[dice_throw(&w->actor.dice, count < POOL_POSTS ? count : POOL_POSTS)];
}

static int act_withdraw(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;

	if (w->sent_count == 0)
		return -EBUSY;
	CHILD_ASSERT(gpuwm_token_withdraw(w->pool, &one_of(w, w->sent, w->sent_count)->token) == 0);
	return 0;
}

/* ---- readers ------------------------------------------------------------- */

static void keep(struct pool_worker *w, struct gpuwm_chunk *chunk, const struct pool_note *note)
{
	CHILD_ASSERT(gpuwm_chunk_bytes(chunk) == note->token.bytes);
	CHILD_ASSERT(pool_holds(chunk, note->key));
	w->reading[w->reading_count++] = (struct pool_held){chunk, *note};
}

/* In its stream, which then waits for the writer's. A writer that dies does not get there. */
static int take_in_stream(struct pool_worker *w, const struct pool_note *note, struct gpuwm_chunk **ret)
{
	int r = MAY_REFUSE(gpuwm_chunk_take_in_stream(w->pool, &note->token, w->actor.stream, ret), ESTALE,
			   EALREADY);

	if (r < 0)
		return r;
	storm_stream_wait(w->actor.stream);
	if (MAY_REFUSE(gpuwm_chunk_check(*ret), EOWNERDEAD) == 0)
		return 0;
	CHILD_ASSERT(gpuwm_chunk_finish(*ret) == 0);
	return -EOWNERDEAD;
}

static int take(struct pool_worker *w, const struct pool_note *note)
{
	struct gpuwm_chunk *chunk;
	int r;

	if (w->reading_count == POOL_HELD)
		return -EBUSY;
	/* Its own stream is behind, or it would wait for itself. */
	storm_stream_wait(w->actor.stream);
	if (w->actor.stream && some(w, 30))
		r = take_in_stream(w, note, &chunk);
	else
		r = MAY_REFUSE(
			gpuwm_chunk_take(w->pool, &note->token, (int64_t)dice_throw(&w->actor.dice, 3), &chunk),
			ESTALE, EALREADY, ETIMEDOUT, EOWNERDEAD);
	if (r == 0)
		keep(w, chunk, note);
	return r;
}

static int act_take(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct pool_posts *posts = &w->board->posts[w->actor.number];
	const uint64_t first = atomic_load(&posts->first);
	struct pool_note note;

	if (first == atomic_load(&posts->end))
		return -EBUSY;
	note = posts->notes[first % POOL_POSTS];
	atomic_store(&posts->first, first + 1);
	w->seen[w->seen_count++ % POOL_POSTS] = note;
	return take(w, &note);
}

static int act_replay(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;

	return w->seen_count == 0 ? -EBUSY : take(w, one_of(w, w->seen, w->seen_count));
}

static void forge(struct pool_worker *w, struct gpuwm_token *token)
{
	switch (dice_throw(&w->actor.dice, 6)) {
	case 0:
		token->region[3] ^= 1;
		break;
	case 1:
		token->generation += 256 * (1 + dice_throw(&w->actor.dice, 5));
		break;
	case 2:
		token->offset ^= UINT64_C(1) << dice_throw(&w->actor.dice, 64);
		break;
	case 3:
		token->bytes ^= UINT64_C(1) << dice_throw(&w->actor.dice, 64);
		break;
	case 4:
		token->chunk += 1 + (uint32_t)dice_throw(&w->actor.dice, UINT32_MAX - 1);
		break;
	case 5:
		token->writer ^= 1u << dice_throw(&w->actor.dice, 32);
		break;
	}
}

/* A token that nobody made. With another chunk it may be one that the owner did make. */
static int act_forge(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct gpuwm_chunk *chunk;
	struct pool_note note;

	if (w->seen_count == 0)
		return -EBUSY;
	note = *one_of(w, w->seen, w->seen_count);
	forge(w, &note.token);
	CHILD_ASSERT(MAY_REFUSE(gpuwm_chunk_take(w->pool, &note.token, 0, &chunk), EINVAL, ESTALE, EALREADY,
				ETIMEDOUT, EOWNERDEAD) < 0);
	return 0;
}

static int act_get(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct gpuwm_message *message;
	struct pool_note note;
	int r;

	if (w->reading_count == POOL_HELD)
		return -EBUSY;
	storm_stream_wait(w->actor.stream);
	r = MAY_REFUSE(
		gpuwm_queue_get(w->queue, (int64_t)dice_throw(&w->actor.dice, 2), NULL, 0, &message, NULL),
		EAGAIN);
	if (r < 0)
		return r;
	CHILD_ASSERT(message->bytes == sizeof note.key && message->chunk_count == 1);
	note.token = message->tokens[0];
	memcpy(&note.key, message->data, sizeof note.key);
	w->seen[w->seen_count++ % POOL_POSTS] = note;
	if (message->chunks[0] &&
	    MAY_REFUSE(gpuwm_chunk_wait(message->chunks[0], 2), ETIMEDOUT, EOWNERDEAD) == 0) {
		keep(w, message->chunks[0], &note);
		message->chunks[0] = NULL;
	}
	gpuwm_message_free(message);
	return 0;
}

static int act_finish(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct pool_held held;

	if (w->reading_count == 0)
		return -EBUSY;
	held = removed(w, w->reading, &w->reading_count);
	CHILD_ASSERT(pool_holds(held.chunk, held.note.key));
	if (w->actor.stream && some(w, 50))
		CHILD_ASSERT(gpuwm_chunk_finish_in_stream(held.chunk, w->actor.stream) == 0);
	else
		CHILD_ASSERT(gpuwm_chunk_finish(held.chunk) == 0);
	return 0;
}

static int act_await(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	const struct pool_note *notes = w->owns ? w->sent : w->seen;
	const uint64_t count = w->owns ? w->sent_count : w->seen_count;

	if (count == 0)
		return -EBUSY;
	return MAY_REFUSE(gpuwm_token_finished(w->pool, &one_of(w, notes, count)->token,
					       (int64_t)dice_throw(&w->actor.dice, 2)),
			  ETIMEDOUT);
}

static int act_look(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct gpuwm_pool_figures figures;

	CHILD_ASSERT(gpuwm_pool_figures(w->pool, &figures) == 0);
	CHILD_ASSERT(figures.used <= POOL_BYTES && figures.free <= POOL_BYTES &&
		     figures.largest_free <= POOL_BYTES);
	CHILD_ASSERT(figures.chunks <= POOL_CHUNKS);
	return 0;
}

/* ---- opening ------------------------------------------------------------- */

void pool_open(struct pool_worker *w)
{
	struct gpuwm_region_info info;

	w->pool = storm_region_open(&w->actor, "pool", dice_percent(&w->actor.dice, 70) ? GPUWM_REGION_OWN : 0);
	gpuwm_region_info(w->pool, &info);
	CHILD_ASSERT(info.bytes == POOL_BYTES && info.chunks == POOL_CHUNKS);
	w->owns = info.owns;
	atomic_store(&w->actor.told->slot, info.slot);
	atomic_store(&w->told->owns, info.owns);
}

void pool_drop_all(struct pool_worker *w)
{
	while (w->reading_count > 0)
		CHILD_ASSERT(gpuwm_chunk_finish(w->reading[--w->reading_count].chunk) == 0);
	while (w->filling_count > 0)
		CHILD_ASSERT(gpuwm_chunk_discard(w->filling[--w->filling_count].chunk) == 0);
	storm_stream_wait(w->actor.stream);
}

static int act_reopen(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;

	if (w->owns && !dice_percent(&w->actor.dice, 20))
		return -EBUSY;
	pool_drop_all(w);
	atomic_store(&w->told->owns, false);
	CHILD_ASSERT(gpuwm_region_close(w->pool) == 0);
	w->sent_count = 0;
	pool_open(w);
	return 0;
}

/* ---- all of them -------------------------------------------------------------- */

const struct storm_operation pool_operations[] = {
	/* How often: by the owner, by another one. */
	{"alloc", act_alloc, {30, 0}},
	{"offer", act_offer, {25, 0}},
	{"discard", act_discard, {3, 0}},
	{"withdraw", act_withdraw, {4, 0}},
	{"await", act_await, {4, 2}},
	{"take", act_take, {10, 40}},
	{"replay", act_replay, {2, 6}},
	{"forge", act_forge, {1, 3}},
	{"get", act_get, {4, 12}},
	{"finish", act_finish, {15, 34}},
	{"reopen", act_reopen, {1, 1}},
	{"look", act_look, {1, 2}},
	{0},
};
