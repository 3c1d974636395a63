/* What a copy's readers do differently if the source is cut (cut.h).
 *
 *   file → own buffer → a rank's runs, one behind the other → digest → the ring's buffer, or the rank's memory
 *
 * What a reader reads at once stays in its CPU's cache until the ranks have theirs, and goes past the caches into the
 * ring's buffer: with several GPUs the host's memory is the limit, and it has each byte pass three times (read from the
 * page cache, written to the buffer, fetched by the GPU).
 *
 * In the ring's buffer the ranks' runs of a span lie one rank behind the other. So each rank gets at most one range of each
 * span, whatever the rows' size: lanes take few large copies. */
#ifndef GPUWM_LOADER_COPY_CUT_H
#define GPUWM_LOADER_COPY_CUT_H

#include "copy_internal.h"

/* Puts the next `bytes` of the piece, which lie at `from`, where they belong, and digests them.
 * Returns 0. Fails with -ENOMEM, and with the codes of host_write. */
int copy_cut_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error);
/* Sends the piece to each target. Returns as lanes_send does. */
int copy_cut_send(const struct hand *hand, struct error *error);
/* Sets the digest of each share that belongs to the rank of a target. */
void copy_cut_digests(const struct crew *crew, struct digest *ret);

#endif
