#include "chunk.h"

#include <errno.h>

void chunk_finish(const struct chunk_use *use)
{
	_Atomic uint64_t *word = &chunk_entry(use)->word;
	uint64_t now = atomic_load(word), next;

	/* Nobody else ends this process's hold, unless somebody writes what no user writes. */
	while (chunk_word_finish(now, use->region->slot, use->generation, &next) == 0 &&
	       !atomic_compare_exchange_weak(word, &now, next))
		;
	/* For streams that wait for this reader. It comes last: the owner takes the word for a stream's, and could use the chunk
	 * again before the exchange. */
	control_raise(chunk_finished(use, use->region->slot), use->generation);
	control_ring(&use->region->control.head->freed);
}

/* -EBUSY: the stream is being captured. */
static int finish_in_stream(const struct chunk_use *use, void *stream, struct error *error)
{
	return region_words_write(use->region, stream, chunk_finished(use, use->region->slot), use->generation,
				  error);
}

int chunk_finish_last(struct keep *keep)
{
	struct gpuwm_chunk *chunk = (struct gpuwm_chunk *)((char *)keep - offsetof(struct gpuwm_chunk, keep));
	int r = 0;

	if (chunk->in_stream) {
		if (!reaper_enter())
			return -EBUSY;
		r = finish_in_stream(&chunk->use, chunk->stream, NULL);
		reaper_leave();
	}
	if (r == -EBUSY)
		return r;
	/* In a broken context nothing reads any more. */
	if (r < 0 || !chunk->in_stream)
		chunk_finish(&chunk->use);
	chunk_free(chunk);
	return 0;
}

int gpuwm_chunk_finish(struct gpuwm_chunk *chunk)
{
	struct error error;
	int r = chunk_usable(chunk, false, &error);

	if (r < 0)
		return client_fail(&error);
	if (!keep_claim(&chunk->keep)) {
		keep_give_up(&chunk->keep);
		return 0;
	}
	chunk_finish(&chunk->use);
	chunk_free(chunk);
	return 0;
}

int gpuwm_chunk_finish_in_stream(struct gpuwm_chunk *chunk, void *stream)
{
	struct error error;
	int r = chunk_usable(chunk, false, &error);

	if (r == 0 && !region_words_exist(chunk->use.region))
		r = error_set(&error, -ENOTSUP, "finish it without a stream", "a region on %s has no streams",
			      chunk->use.region->device.id);
	if (r < 0)
		return client_fail(&error);
	if (!keep_claim(&chunk->keep)) {
		chunk->stream = stream;
		chunk->in_stream = true;
		keep_give_up(&chunk->keep);
		return 0;
	}
	r = finish_in_stream(&chunk->use, stream, &error);
	if (r < 0) {
		keep_put_back(&chunk->keep);
		return client_fail(&error);
	}
	chunk_free(chunk);
	return 0;
}
