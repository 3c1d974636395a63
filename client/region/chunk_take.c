#include "chunk.h"

#include "../../base/clock.h"

#include <errno.h>

static int chunk_is_stale(const struct chunk_use *use, struct error *error)
{
	return error_set(
		error, -ESTALE, "ask the sender for a new token",
		"chunk %u of region %s can't be taken with this token: all its readers have come, it was "
		"withdrawn, or it is in use for something else",
		use->chunk, region_title(use->region));
}

static int chunk_refuse_take(const struct chunk_use *use, int code, struct error *error)
{
	if (code != -EALREADY)
		return chunk_is_stale(use, error);
	return error_set(error, -EALREADY, "a reader takes a chunk once",
			 "this process holds chunk %u of region %s already, or has finished with it",
			 use->chunk, region_title(use->region));
}

/* Whether the process could take the chunk now. */
static int chunk_check_take(const struct chunk_use *use, struct error *error)
{
	const struct control_chunk *entry = chunk_entry(use);
	bool matches;
	uint64_t next;
	int r = region_running(use->region, error);

	if (r < 0)
		return r;
	/* What the token says is compared with the entry. The owner changes the word first, so it is compared last. */
	matches = atomic_load(&entry->offset) == use->offset && atomic_load(&entry->bytes) == use->bytes &&
		  atomic_load(&entry->writer) == use->writer;
	if (!chunk_is_current(use) || !chunk_word_is_of(atomic_load(&entry->word), use->generation))
		return chunk_is_stale(use, error);
	if (!matches)
		return error_set(error, -EINVAL, NULL,
				 "the token says other bytes than chunk %u of region %s has", use->chunk,
				 region_title(use->region));
	r = chunk_word_take(atomic_load(&entry->word), use->region->slot, use->generation, &next);
	return r < 0 ? chunk_refuse_take(use, r, error) : 0;
}

int chunk_take(const struct chunk_use *use, struct error *error)
{
	_Atomic uint64_t *word = &chunk_entry(use)->word;
	uint64_t before = atomic_load(word), next = 0;
	struct chunk_use other;
	int r = chunk_check_take(use, error);

	if (r < 0)
		return r;
	do {
		r = chunk_word_take(before, use->region->slot, use->generation, &next);
		if (r < 0)
			return chunk_refuse_take(use, r, error);
	} while (!atomic_compare_exchange_weak(word, &before, next));
	if (!chunk_is_current(use)) {
		/* The word has one byte of the generation. After 256 uses it could be of another one, which this process has
		 * taken then. */
		other = *use;
		other.generation = atomic_load(&chunk_entry(use)->generation);
		chunk_finish(&other);
		return chunk_is_stale(use, error);
	}
	r = region_running(use->region, error);
	if (r < 0)
		chunk_finish(use);
	return r;
}

/* ---- waiting for the bytes ---------------------------------------------- */

int chunk_look(const struct chunk_use *use, struct error *error)
{
	const struct control_chunk *entry = chunk_entry(use);
	char who[REGION_USER_TEXT];

	if (atomic_load(&entry->written) < use->generation)
		return error_set(error, -EAGAIN, "wait for the stream that writes it",
				 "the bytes of chunk %u of region %s are not there yet", use->chunk,
				 region_title(use->region));
	if (atomic_load(&entry->lost) != use->generation)
		return 0;
	region_user_text(use->region, use->writer, who);
	return error_set(error, -EOWNERDEAD, NULL, "%s has exited before it had written chunk %u of region %s",
			 who, use->chunk, region_title(use->region));
}

int chunk_wait(const struct chunk_use *use, int64_t deadline, struct error *error)
{
	struct nap nap = nap_begin(use->region);
	int r;

	for (;;) {
		nap_look(&nap);
		if (!chunk_is_current(use))
			return chunk_is_stale(use, error);
		r = chunk_look(use, error);
		if (r != -EAGAIN)
			return r;
		if (!nap_take(&nap, deadline))
			return error_set(error, -ETIMEDOUT, "wait for longer",
					 "the bytes of chunk %u of region %s are not there yet", use->chunk,
					 region_title(use->region));
	}
}

/* ---- the calls ---------------------------------------------------------- */

/* What waits for the bytes of a chunk that was taken. */
struct awaiting {
	bool in_stream;
	void *stream;
	int64_t deadline;
};

static int chunk_await(const struct chunk_use *use, const struct awaiting *how, struct error *error)
{
	if (how->in_stream)
		return region_words_wait(use->region, how->stream, &chunk_entry(use)->written, use->generation,
					 error);
	return chunk_wait(use, how->deadline, error);
}

/* It waits before it takes: what was taken can't be given back, because the owner may withdraw meanwhile. */
static int chunk_take_written(const struct chunk_use *use, const struct awaiting *how, struct error *error)
{
	int r = chunk_check_take(use, error), taken;

	if (r == 0)
		r = chunk_await(use, how, error);
	if (r < 0 && r != -EOWNERDEAD)
		return r;
	taken = chunk_take(use, r < 0 ? NULL : error);
	if (taken == 0 && r < 0)
		chunk_finish(use); /* there is nothing to come back for */
	return r < 0 ? r : taken;
}

static int token_take(struct gpuwm_region *region, const struct gpuwm_token *token, const struct awaiting *how,
		      struct gpuwm_chunk **ret_chunk, struct error *error)
{
	struct chunk_use use;
	struct gpuwm_chunk *chunk;
	int r = region_usable(region, GPUWM_REGION_POOL, error);

	if (r == 0)
		r = chunk_of_token(region, token, &use, error);
	if (r < 0)
		return r;
	chunk = chunk_new(region);
	if (!chunk)
		return error_set(error, -ENOMEM, NULL, "out of memory for a chunk");
	chunk->use = use;
	r = chunk_take_written(&use, how, error);
	if (r < 0)
		chunk_free(chunk);
	else
		*ret_chunk = chunk;
	return r;
}

int gpuwm_chunk_take(struct gpuwm_region *region, const struct gpuwm_token *token, int64_t wait_ms,
		     struct gpuwm_chunk **ret_chunk)
{
	const struct awaiting how = {.deadline = clock_deadline(wait_ms)};
	struct error error;
	int r = token_take(region, token, &how, ret_chunk, &error);

	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_chunk_take_in_stream(struct gpuwm_region *region, const struct gpuwm_token *token, void *stream,
			       struct gpuwm_chunk **ret_chunk)
{
	const struct awaiting how = {.in_stream = true, .stream = stream};
	struct error error;
	int r = token_take(region, token, &how, ret_chunk, &error);

	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_chunk_check(const struct gpuwm_chunk *chunk)
{
	struct error error;
	int r = chunk_usable(chunk, false, &error);

	if (r == 0)
		r = chunk_look(&chunk->use, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_chunk_wait(struct gpuwm_chunk *chunk, int64_t wait_ms)
{
	struct error error;
	int r = chunk_usable(chunk, false, &error);

	if (r == 0)
		r = chunk_wait(&chunk->use, clock_deadline(wait_ms), &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_chunk_wait_in_stream(struct gpuwm_chunk *chunk, void *stream)
{
	const struct awaiting how = {.in_stream = true, .stream = stream};
	struct error error;
	int r = chunk_usable(chunk, false, &error);

	if (r == 0)
		r = chunk_await(&chunk->use, &how, &error);
	return r < 0 ? client_fail(&error) : 0;
}
