/* What processes do in the storm over a pool. */
#include "pool_storm.h"

static bool some(struct pool_worker *w, unsigned percent)
{
	return dice_percent(&w->dice, percent);
}

static struct pool_held removed(struct pool_worker *w, struct pool_held *list, unsigned *count)
{
	const unsigned at = (unsigned)dice_throw(&w->dice, *count);
	const struct pool_held held = list[at];

	list[at] = list[--*count];
	return held;
}

/* ---- the owner ----------------------------------------------------------- */

int pool_op_alloc(struct pool_worker *w)
{
	const uint64_t most = some(w, 70) ? KB(16) : POOL_LARGEST;
	const uint64_t bytes = 8 * (1 + dice_throw(&w->dice, most / 8));
	const int64_t wait_ms = some(w, 70) ? 0 : (int64_t)dice_throw(&w->dice, 3);
	struct pool_held *held = &w->filling[w->filling_count];
	int r;

	if (w->filling_count == POOL_HELD)
		return -EBUSY;
	r = MAY_REFUSE(gpuwm_chunk_alloc(w->pool, bytes, wait_ms, &held->chunk), EAGAIN);
	if (r < 0)
		return r;
	CHILD_ASSERT(gpuwm_chunk_bytes(held->chunk) == bytes);
	held->note.key = dice_throw(&w->dice, UINT64_MAX);
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
		const struct pool_told *told = &w->board->told[i];

		if (atomic_load(&told->state) < POOL_WORKING || !some(w, 25))
			continue;
		readers->named |= 1u << atomic_load(&told->slot);
		to |= 1u << i;
	}
	if (readers->named == 0 || some(w, 30))
		readers->others = 1 + (uint32_t)dice_throw(&w->dice, 3);
	/* Sometimes more than there are seats. */
	for (unsigned i = 0; i < readers->others; i++)
		to |= 1u << dice_throw(&w->dice, POOL_WORKERS);
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

int pool_op_offer(struct pool_worker *w)
{
	struct gpuwm_readers readers;
	struct pool_held held;
	unsigned to;
	int r;

	if (w->filling_count == 0)
		return -EBUSY;
	held = removed(w, w->filling, &w->filling_count);
	CHILD_ASSERT(pool_holds(held.chunk, held.note.key));
	to = choose_readers(w, &readers);
	if (w->stream && some(w, 50))
		r = gpuwm_chunk_offer_in_stream(held.chunk, &readers, w->stream, &held.note.token);
	else
		r = gpuwm_chunk_offer(held.chunk, &readers, &held.note.token);
	if (MAY_REFUSE(r, ESRCH) < 0) {
		w->filling[w->filling_count++] = held;
		return r;
	}
	send_token(w, &held.note, to, readers.others);
	if (some(w, 50))
		pool_stream_wait(w->stream);
	return 0;
}

int pool_op_discard(struct pool_worker *w)
{
	if (w->filling_count == 0)
		return -EBUSY;
	CHILD_ASSERT(gpuwm_chunk_discard(removed(w, w->filling, &w->filling_count).chunk) == 0);
	return 0;
}

static const struct pool_note *one_of(struct pool_worker *w, const struct pool_note *notes, uint64_t count)
{
	return &notes[dice_throw(&w->dice, count < POOL_POSTS ? count : POOL_POSTS)];
}

int pool_op_withdraw(struct pool_worker *w)
{
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
	int r = MAY_REFUSE(gpuwm_chunk_take_in_stream(w->pool, &note->token, w->stream, ret), ESTALE, EALREADY);

	if (r < 0)
		return r;
	pool_stream_wait(w->stream);
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
	pool_stream_wait(w->stream);
	if (w->stream && some(w, 30))
		r = take_in_stream(w, note, &chunk);
	else
		r = MAY_REFUSE(
			gpuwm_chunk_take(w->pool, &note->token, (int64_t)dice_throw(&w->dice, 3), &chunk),
			ESTALE, EALREADY, ETIMEDOUT, EOWNERDEAD);
	if (r == 0)
		keep(w, chunk, note);
	return r;
}

int pool_op_take(struct pool_worker *w)
{
	struct pool_posts *posts = &w->board->posts[w->number];
	const uint64_t first = atomic_load(&posts->first);
	struct pool_note note;

	if (first == atomic_load(&posts->end))
		return -EBUSY;
	note = posts->notes[first % POOL_POSTS];
	atomic_store(&posts->first, first + 1);
	w->seen[w->seen_count++ % POOL_POSTS] = note;
	return take(w, &note);
}

int pool_op_replay(struct pool_worker *w)
{
	return w->seen_count == 0 ? -EBUSY : take(w, one_of(w, w->seen, w->seen_count));
}

static void forge(struct pool_worker *w, struct gpuwm_token *token)
{
	switch (dice_throw(&w->dice, 6)) {
	case 0:
		token->region[3] ^= 1;
		break;
	case 1:
		token->generation += 256 * (1 + dice_throw(&w->dice, 5));
		break;
	case 2:
		token->offset ^= UINT64_C(1) << dice_throw(&w->dice, 64);
		break;
	case 3:
		token->bytes ^= UINT64_C(1) << dice_throw(&w->dice, 64);
		break;
	case 4:
		token->chunk += 1 + (uint32_t)dice_throw(&w->dice, UINT32_MAX - 1);
		break;
	case 5:
		token->writer ^= 1u << dice_throw(&w->dice, 32);
		break;
	}
}

/* A token that nobody made. With another chunk it may be one that the owner did make. */
int pool_op_forge(struct pool_worker *w)
{
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

int pool_op_get(struct pool_worker *w)
{
	struct gpuwm_message *message;
	struct pool_note note;
	int r;

	if (w->reading_count == POOL_HELD)
		return -EBUSY;
	pool_stream_wait(w->stream);
	r = MAY_REFUSE(gpuwm_queue_get(w->queue, (int64_t)dice_throw(&w->dice, 2), NULL, 0, &message, NULL),
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

int pool_op_finish(struct pool_worker *w)
{
	struct pool_held held;

	if (w->reading_count == 0)
		return -EBUSY;
	held = removed(w, w->reading, &w->reading_count);
	CHILD_ASSERT(pool_holds(held.chunk, held.note.key));
	if (w->stream && some(w, 50))
		CHILD_ASSERT(gpuwm_chunk_finish_in_stream(held.chunk, w->stream) == 0);
	else
		CHILD_ASSERT(gpuwm_chunk_finish(held.chunk) == 0);
	return 0;
}

int pool_op_await(struct pool_worker *w)
{
	const struct pool_note *notes = w->owns ? w->sent : w->seen;
	const uint64_t count = w->owns ? w->sent_count : w->seen_count;

	if (count == 0)
		return -EBUSY;
	return MAY_REFUSE(gpuwm_token_finished(w->pool, &one_of(w, notes, count)->token,
					       (int64_t)dice_throw(&w->dice, 2)),
			  ETIMEDOUT);
}

int pool_op_look(struct pool_worker *w)
{
	struct gpuwm_pool_figures figures;

	CHILD_ASSERT(gpuwm_pool_figures(w->pool, &figures) == 0);
	CHILD_ASSERT(figures.used <= POOL_BYTES && figures.free <= POOL_BYTES &&
		     figures.largest_free <= POOL_BYTES);
	CHILD_ASSERT(figures.chunks <= POOL_CHUNKS);
	return 0;
}
