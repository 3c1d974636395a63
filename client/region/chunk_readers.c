/* What becomes of an offered chunk: whether its readers have finished, and naps until they have. */
#include "chunk.h"
#include "../../base/clock.h"

#include <errno.h>
#include <time.h>

/* The users that this use of the chunk still waits for. */
static uint32_t users_awaited(const struct chunk_use *use, uint64_t word)
{
	uint32_t users = chunk_word_users(word, CHUNK_WAITING);

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (chunk_word_state(word, slot) == CHUNK_HOLDING &&
		    atomic_load(chunk_finished(use, slot)) < use->generation)
			users |= UINT32_C(1) << slot;
	}
	return users;
}

static int chunk_wait_finished(const struct chunk_use *use, int64_t deadline, struct error *error)
{
	struct nap nap = nap_begin(use->region);
	uint64_t word;
	int r;

	for (;;) {
		nap_look(&nap);
		word = atomic_load(&chunk_entry(use)->word);
		if (users_awaited(use, word) == 0 && chunk_word_open(word) == 0)
			return 0;
		/* The generation is compared after the word was read: the word may be of a later one. */
		if (!chunk_is_current(use))
			return 0;
		r = region_running(use->region, error);
		if (r < 0)
			return r;
		if (!nap_take(&nap, deadline))
			return error_set(error, -ETIMEDOUT, "wait for longer, or withdraw the chunk",
					 "readers of chunk %u of region %s have not finished", use->chunk,
					 region_title(use->region));
	}
}

int gpuwm_token_finished(struct gpuwm_region *region, const struct gpuwm_token *token, int64_t wait_ms)
{
	struct chunk_use use;
	struct error error;
	int r = region_usable(region, GPUWM_REGION_POOL, &error);

	if (r == 0)
		r = chunk_of_token(region, token, &use, &error);
	if (r == 0)
		r = chunk_wait_finished(&use, clock_deadline(wait_ms), &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* A wait for each user. One that exits, or that is withdrawn from, has its word raised. */
static int stream_wait_for_all(const struct chunk_use *use, void *stream, struct error *error)
{
	const uint32_t users = users_awaited(use, atomic_load(&chunk_entry(use)->word));
	int r = 0;

	if (!chunk_is_current(use))
		return 0;
	for (unsigned slot = 0; r == 0 && slot < REGION_USERS_MAX; slot++) {
		if (users >> slot & 1)
			r = region_words_wait(use->region, stream, chunk_finished(use, slot), use->generation,
					      error);
	}
	return r;
}

int gpuwm_token_finished_in_stream(struct gpuwm_region *region, const struct gpuwm_token *token, void *stream)
{
	struct chunk_use use;
	struct error error;
	int r = region_usable(region, GPUWM_REGION_POOL, &error);

	if (r == 0)
		r = chunk_of_token(region, token, &use, &error);
	if (r == 0 && !region_words_exist(region))
		r = error_set(&error, -ENOTSUP, "wait without a stream", "a region on %s has no streams",
			      region->device.id);
	if (r == 0)
		r = stream_wait_for_all(&use, stream, &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* ---- naps ---- */

/* The first nap is about as long as a hand-over between two GPU streams takes, so a wait for a short kernel is late by no more than
 * the kernel's own time. Naps double up to 1 ms, which keeps a CPU 99 % free. */
#define NAP_MIN_US 20
#define NAP_MAX_US 1000

struct nap nap_begin(const struct gpuwm_region *region)
{
	return (struct nap){.bell = &region->control.head->freed, .streams = region_words_exist(region)};
}

void nap_look(struct nap *nap)
{
	nap->seen = atomic_load(&nap->bell->rung);
}

bool nap_take(struct nap *nap, int64_t deadline)
{
	const int left = clock_left(deadline);

	if (left == 0)
		return false;
	if (!nap->streams) {
		control_sleep(nap->bell, nap->seen, left);
		return true;
	}
	if (nap->next_us < NAP_MIN_US)
		nap->next_us = NAP_MIN_US;
	if (nap->next_us < NAP_MAX_US)
		nanosleep(&(struct timespec){.tv_nsec = nap->next_us * 1000}, NULL);
	else
		control_sleep(nap->bell, nap->seen, NAP_MAX_US / 1000);
	nap->next_us = nap->next_us * 2 < NAP_MAX_US ? nap->next_us * 2 : NAP_MAX_US;
	return true;
}
