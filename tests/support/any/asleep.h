/* Whether somebody waits inside of the library: a test that wants to see a wait looks here, instead of sleeping itself. */
#ifndef GPUWM_TESTS_ASLEEP_H
#define GPUWM_TESTS_ASLEEP_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether this thread of this process sleeps on a futex or for some time, as the library does while it waits; not whether it reads or
 * polls. The process is the caller, or a child of the caller's. */
bool thread_is_asleep(pid_t process, pid_t thread);

#endif
