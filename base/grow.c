#include "grow.h"
#include "bytes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The kernel sends SIGXFSZ to the thread that grew the file. So the thread blocks the signal and
 * takes it away. If one was pending before the call, somebody else sent it, and it stays. */
static int grow_unsignalled(int fd, uint64_t bytes)
{
	const struct timespec at_once = {0};
	sigset_t limit, before, pending;
	int r = 0;

	sigemptyset(&limit);
	sigaddset(&limit, SIGXFSZ);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &limit, &before);
	if (ftruncate(fd, (off_t)bytes) < 0)
		r = -errno;
	if (r == -EFBIG && !sigismember(&pending, SIGXFSZ))
		sigtimedwait(&limit, NULL, &at_once);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

int file_grow(int fd, uint64_t bytes, const char *what, const char *remedy, struct error *error)
{
	char asked[BYTES_TEXT], most[BYTES_TEXT];
	struct rlimit limit = {0};
	int r = grow_unsignalled(fd, bytes);

	if (r == -EFBIG) {
		getrlimit(RLIMIT_FSIZE, &limit);
		return error_set(error, -ENOSPC, "raise RLIMIT_FSIZE (ulimit -f; LimitFSIZE= of a service)",
				 "%s: a file of %s is beyond this process's RLIMIT_FSIZE of %s", what,
				 bytes_format(bytes, asked), bytes_format(limit.rlim_cur, most));
	}
	if (r == -ENOMEM)
		r = -ENOSPC;
	return r < 0 ? error_set(error, r, r == -ENOSPC ? remedy : NULL, "%s: %s", what, strerror(-r)) : 0;
}

int file_write_all(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes > 0) {
		ssize_t n = write(fd, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}
