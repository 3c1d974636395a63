/* LD_PRELOAD: gpuwmd adds a descriptor to an epoll instance for the $NO_WATCH-th time, and the kernel says that the user
 * has all the watches that it may have. A line on stderr says that it was so. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_due(void)
{
	static int left = -1;
	const char *wanted = getenv("NO_WATCH");

	if (left < 0)
		left = wanted && strcmp(program_invocation_short_name, "gpuwmd") == 0 ? atoi(wanted) : 0;
	return left > 0 && --left == 0;
}

__attribute__((visibility("default"))) int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	if (what == EPOLL_CTL_ADD && is_due()) {
		fputs("no-watch: refused\n", stderr);
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, epoll, what, fd, event);
}
