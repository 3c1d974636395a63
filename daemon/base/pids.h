/* Pids, and which processes they name. */
#ifndef GPUWM_DAEMON_PIDS_H
#define GPUWM_DAEMON_PIDS_H

#include <stdint.h>
#include <sys/types.h>

/* Returns when the process started, in clock ticks since the machine did: with its pid this names a process as long as the machine runs. 0: there is
 * no such process, or /proc does not tell. Reads one file of /proc, which waits for no disk and no other process. */
uint64_t pid_started(pid_t pid);
/* Returns the number of this process's PID namespace, in which its pids count; 0: /proc does not tell. */
uint64_t pid_namespace_id(void);
/* Returns a pidfd, which the caller closes; or -errno, -ESRCH: there is no such process. */
int pid_open(pid_t pid);

#endif
