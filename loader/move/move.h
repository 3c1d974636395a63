/* The move job: one part of a version goes from one tier to another.
 *
 *   device → host    pinned buffers → memfds → sealed, digested
 *   host → device    memfds → pinned buffers → new memory → digested there
 *   files → either   as a load, to the places that the index says
 *   either → files   the files are read and digested; nothing is written
 *
 * The part that the job came with is only read, so a move that fails leaves it as it was. */
#ifndef GPUWM_LOADER_MOVE_H
#define GPUWM_LOADER_MOVE_H

#include "../prepare.h"

/* Moves the job's part, and hands the new memory to gpuwmd. `prepare` was started for this job; NULL: the job needs no GPU. When the
 * function returns, this process holds none of the new memory.
 *
 * Returns 0. Fails with
 *   -EBADMSG     Bytes are not those of the index. If the part's own memory differs, work->damaged is its segment; otherwise the
 *                files changed, and the message names one of them.
 *   -ENOENT      A file is missing.
 *   -EINVAL      The part can't lie on the job's tier or device.
 *   -ENOSPC      There is no room for the new memory.
 *   -EIO         Memory or a file can't be read.
 *   -ECANCELED, -ECONNRESET, and the codes of its steps. */
int move_run(const struct job *job, struct work *work, struct prepare *prepare, struct error *error);

#endif
