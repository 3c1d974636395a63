/* What a copy's readers do differently if the source is cut (cut.h).
 *
 *   of a piece that lies in one row of its tensor:  as in the file, so each rank's run is one range
 *   of a piece with several rows:                   file → own buffer → the ranks' runs, one rank
 *                                                   behind the other, in the ring's buffer
 *
 * So each rank gets at most one range of each span, whatever the rows' size: lanes take few large
 * copies. On host, runs go from the reader's own buffer to their place. Digests are computed over a
 * rank's bytes where they lie one behind the other, in the source's buffer or at their place. */
#ifndef GPUWM_LOADER_COPY_CUT_H
#define GPUWM_LOADER_COPY_CUT_H

#include "copy_internal.h"

/* Returns whether the next `bytes` of the piece have bytes of several rows, so that they can't be
 * read straight into the ring's buffer. */
bool copy_cut_packs(const struct hand *hand, size_t bytes);
/* Puts the next `bytes` of the piece, which lie at `from`, where they belong, and digests them.
 * Returns 0. Fails with -ENOMEM, and with the codes of host_write. */
int copy_cut_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error);
/* Sends the piece to each target. Returns as lanes_send does. */
int copy_cut_send(const struct hand *hand, struct error *error);
/* Sets the digest of each share that belongs to the rank of a target. */
void copy_cut_digests(const struct crew *crew, struct digest *ret);

#endif
