/* A reader finishes with a chunk. */
#ifndef GPUWM_LIB_CHUNK_FINISH_H
#define GPUWM_LIB_CHUNK_FINISH_H

#include "chunk.h"

/* This process has finished with what it holds. */
void chunk_finish(const struct chunk_use *use);
/* For chunk_new: called after the last export of a handle that was given up. */
int chunk_finish_last(struct keep *keep);

#endif
