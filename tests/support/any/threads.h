/* The threads of this process. */
#ifndef GPUWM_TESTS_ANY_THREADS_H
#define GPUWM_TESTS_ANY_THREADS_H

#include <stdbool.h>
#include <sys/syscall.h>

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

/* Whether a thread of this name sleeps in this system call (SYS_…). If `name` is NULL, any thread counts. */
bool thread_sleeps_in(const char *name, long call);

#endif
