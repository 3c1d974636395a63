/* Other processes: figures taken in a child, so that none of the driver's state stays, and what /proc tells. */
#ifndef GPUWM_BENCH_PROCESS_H
#define GPUWM_BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Runs fn(data, result) in a forked child and waits; `result` is what the child left there. A child that
 * fails ends this program. The caller must not have called the driver. */
void child_run(void (*fn)(void *data, void *result), void *data, void *result, size_t bytes);

/* Runs a program found on PATH, its output thrown away, and waits: its exit status. */
int command_run(const char *const argv[]);

/* CPU seconds and peak of resident memory of a process. False: it is gone. */
struct usage {
	double cpu_s;
	uint64_t peak_bytes;
};
bool usage_of(pid_t pid, struct usage *ret);

/* gpuwmd's loaders, looked at every few milliseconds by a thread, from loaders_watch to loaders_seen: the
 * one that used most CPU, which is the one that loaded. */
struct loaders;
struct loaders *loaders_watch(pid_t gpuwmd);
struct usage loaders_seen(struct loaders *loaders);

/* Kills gpuwmd's standby loader and waits until gpuwmd knows: the next job gets a new one. */
void loaders_kill(pid_t gpuwmd);

#endif
