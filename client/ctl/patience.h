/* A file system that hangs (a server that does not answer, FUSE whose program is stopped) keeps whoever asks it in the kernel. gpuwmctl
 * says so, and ends. */
#ifndef GPUWM_CTL_PATIENCE_H
#define GPUWM_CTL_PATIENCE_H

#include <stdint.h>

/* Slow disks write what gpuwmctl saves in pieces of SAVE_SYNC_BYTES (client/lib/calls/save_write.c), each of which they can do in this
 * time at 0.5 MB/s. */
#define PATIENCE_MS 120000

/* Until patience_end, this thread asks the file system of `path` for something. If nothing goes on for limit_ms (patience_beat), prints
 * that it does not answer, with `remedy`, and ends gpuwmctl with EXIT_TIMEOUT. Some seconds before, it says on stderr what it waits for.
 * path and remedy must stay. Without memory for a thread nobody watches. */
void patience_begin(const char *path, uint64_t limit_ms, const char *remedy);
void patience_beat(void);
void patience_end(void);

#endif
