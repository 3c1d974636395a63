/* LD_PRELOAD: a gpuwmd whose end takes as long as a test likes. A process that shares its descriptors keeps them open,
 * and with them its locks, as the kernel does while it closes much memory. That process is a child of gpuwmd named
 * "slow-end"; a test ends it. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A test that failed leaves none for longer. */
#define LONGEST_SECONDS 120

__attribute__((constructor)) static void begin(void)
{
	if (strcmp(program_invocation_short_name, "gpuwmd") != 0 ||
	    syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL) != 0)
		return;
	prctl(PR_SET_NAME, "slow-end");
	alarm(LONGEST_SECONDS);
	for (;;)
		pause();
}
