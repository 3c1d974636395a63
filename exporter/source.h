/* Snapshots of gpuwmd for any number of requests at once. A thread of its own talks to gpuwmd, and only
 * while somebody wants to know. It asks at most once in SNAPSHOT_MS. */
#ifndef GPUWM_EXPORTER_SOURCE_H
#define GPUWM_EXPORTER_SOURCE_H

#include "snapshot.h"

struct source;

/* Starts the thread. socket: gpuwmd's, or NULL for the usual one. Returns 0 and sets *ret, or fails with
 * -errno and logs why. The caller owns the source until source_free; tally and socket live as long. */
int source_new(const char *socket, struct tally *tally, struct source **ret);
/* Ends the thread, which may take as long as gpuwmd takes to answer. source may be NULL. Returns NULL. */
struct source *source_free(struct source *source);

/* Returns a snapshot that was taken less than SNAPSHOT_MS ago, or the next one. The caller owns one
 * reference. If there is none in wait_ms, the snapshot says that gpuwmd is not up. NULL: out
 * of memory.
 *
 * Threads: any may call it. */
struct snapshot *source_get(struct source *source, uint64_t wait_ms);

#endif
