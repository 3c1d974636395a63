/* Whether the file system of a folder answers. Who asks one whose server is gone (NFS, FUSE) waits for ever, and gpuwmd's loop must not. */
#ifndef GPUWM_DAEMON_FOLDER_PROBE_H
#define GPUWM_DAEMON_FOLDER_PROBE_H

#include <stdint.h>

/* Opens and lists the folder in a thread of its own, and waits for that at most so long. Returns 0 if the file system has answered, also
 * with an error. Fails with -ETIMEDOUT if it has not, at once while the thread of an earlier probe still waits; and with what kept the
 * thread from beginning. */
int folder_probe(const char *path, int64_t wait_ms);

#endif
