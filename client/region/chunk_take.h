/* A reader takes a chunk. */
#ifndef GPUWM_LIB_CHUNK_TAKE_H
#define GPUWM_LIB_CHUNK_TAKE_H

#include "chunk.h"

/* Takes the chunk, whether or not its bytes are there. Fails as gpuwm_chunk_take, without waiting. */
int chunk_take(const struct chunk_use *use, struct error *error);

/* Waits until the bytes are there, until the deadline (base/clock.h). Fails with -ETIMEDOUT, -EOWNERDEAD, and -ESTALE if the chunk has
 * another use. */
int chunk_wait(const struct chunk_use *use, int64_t deadline, struct error *error);
/* Returns 0 if the bytes are there, -EAGAIN if not yet, and -EOWNERDEAD if they never come. */
int chunk_look(const struct chunk_use *use, struct error *error);

#endif
