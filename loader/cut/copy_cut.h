/* What a copy's readers do differently if the source is cut (cut.h).
 *
 *   of a piece that lies in one row of its tensor:  as in the file, so each rank's run is one range
 *   of a piece with several rows:                   file → own buffer → the ranks' runs, one rank
 *                                                   behind the other → the ring's buffer
 *
 * So each rank gets at most one range of each span, whatever the rows' size: lanes take few large copies. On host, runs go from
 * the reader's own buffer to their place. What a reader takes at once stays in its CPU's cache until it is digested. */
#ifndef GPUWM_LOADER_COPY_CUT_H
#define GPUWM_LOADER_COPY_CUT_H

#include "../copy/copy_internal.h"

/* Returns whether the next `bytes` of the piece can't be read straight into the ring's buffer: they have bytes of several
 * rows. */
bool copy_cut_gathers(const struct hand *hand, size_t bytes);
/* Puts the next `bytes` of the piece, which lie at `from`, where they belong, and digests them.
 * Returns 0. Fails with -ENOMEM, and with the codes of host_write. */
int copy_cut_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error);
/* Sends the piece to each target. Returns as lanes_send does. */
int copy_cut_send(const struct hand *hand, struct error *error);
/* Sets the digest of each share that belongs to the rank of a target. */
void copy_cut_digests(const struct crew *crew, struct digest *ret);

#endif
