/* The threads of this process, and whether they, or those of a child, sleep: a test that has to see that somebody waits looks here, and
 * does not sleep itself. */
#ifndef GPUWM_TESTS_ANY_THREADS_H
#define GPUWM_TESTS_ANY_THREADS_H

#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/types.h>

/* The system calls of poll and of pause, which not every machine has by these names. */
#ifdef SYS_poll
#define CALL_POLL SYS_poll
#define CALL_PAUSE SYS_pause
#else
#define CALL_POLL SYS_ppoll
#define CALL_PAUSE SYS_ppoll
#endif

/* How many threads run. One that was joined, or can be, does not count, though the kernel lists it for a moment more. */
unsigned threads(void);

/* Whether a thread of this name sleeps in this system call (SYS_…). If `name` is NULL, any thread counts. The process is the caller, or a
 * child of the caller's. */
bool thread_sleeps_in(pid_t process, const char *name, long call);

/* Whether this thread sleeps on a futex or for some time, as the library does while it waits; not whether it reads or polls. */
bool thread_is_asleep(pid_t process, pid_t thread);

#endif
