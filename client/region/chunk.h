/* Chunks that this process holds, and what is common to all that is done with a chunk. */
#ifndef GPUWM_LIB_CHUNK_H
#define GPUWM_LIB_CHUNK_H

#include "region.h"

/* One use of a chunk, as this process has checked it: what the control memory says may change. */
struct chunk_use {
	struct gpuwm_region *region;
	uint32_t chunk;
	unsigned writer; /* a slot */
	uint64_t generation, offset, bytes;
};

struct gpuwm_chunk {
	struct keep keep; /* used by its exports: after the last one it is finished */
	struct chunk_use use;
	bool filling; /* it is the owner's, and not offered yet */
	bool in_stream; /* with exports: it is to be finished in `stream` */
	void *stream;
};

/* Makes a handle, which counts for its region. The caller sets `use`. Returns NULL if there is no memory. */
struct gpuwm_chunk *chunk_new(struct gpuwm_region *region);
/* Frees the handle alone. */
void chunk_free(struct gpuwm_chunk *chunk);
/* Checks that the process may use the handle, as its writer (filling) or as a reader. Fails with -EINVAL and -ECHILD. */
int chunk_usable(const struct gpuwm_chunk *chunk, bool filling, struct error *error);

/* The entry of a chunk, and the word in which a user's stream says that it has finished. */
struct control_chunk *chunk_entry(const struct chunk_use *use);
_Atomic uint64_t *chunk_finished(const struct chunk_use *use, unsigned slot);
/* Whether the entry still has this use of it. */
bool chunk_is_current(const struct chunk_use *use);

/* Checks a token against the region, and sets *ret. Fails with -EINVAL. It does not look whether the token is out of date. */
int chunk_of_token(struct gpuwm_region *region, const struct gpuwm_token *token, struct chunk_use *ret,
		   struct error *error);

/* ---- taking ---- */

/* Takes the chunk, whether or not its bytes are there. Fails as gpuwm_chunk_take, without waiting. */
int chunk_take(const struct chunk_use *use, struct error *error);

/* Waits until the bytes are there, until the deadline (base/clock.h). Fails with -ETIMEDOUT, -EOWNERDEAD, and -ESTALE if the chunk has
 * another use. */
int chunk_wait(const struct chunk_use *use, int64_t deadline, struct error *error);
/* Returns 0 if the bytes are there, -EAGAIN if not yet, and -EOWNERDEAD if they never come. */
int chunk_look(const struct chunk_use *use, struct error *error);

/* ---- finishing ---- */

/* This process has finished with what it holds. */
void chunk_finish(const struct chunk_use *use);
/* For chunk_new: called after the last export of a handle that was given up. */
int chunk_finish_last(struct keep *keep);

/* ---- naps: waiting for other processes to finish with chunks ----
 * A process rings a bell; a stream can't, so whoever may wait for a stream looks
 * again from time to time. */

struct nap {
	struct control_bell *bell;
	uint32_t seen; /* what the bell had rung before the last look */
	bool streams; /* a stream may be what is waited for */
	int64_t next_us; /* how long the next nap is; 0: the first one */
};

/* Begins to wait for users of the region to finish with chunks. */
struct nap nap_begin(const struct gpuwm_region *region);
/* Call it before each look. */
void nap_look(struct nap *nap);
/* Waits until it is worth looking again, or until the deadline (base/clock.h). Returns false if the deadline has passed. */
bool nap_take(struct nap *nap, int64_t deadline);

#endif
