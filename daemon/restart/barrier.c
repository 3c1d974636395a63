#include "barrier.h"

#include "../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* Reads until the other end is closed. */
static int read_answer(int fd, uint64_t deadline_ms, char *ret_answer)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t bytes = 0;

	for (;;) {
		ssize_t got;
		int r = poll(&ready, 1, (int)clock_left_ms(deadline_ms));

		if (r == 0)
			return -ETIMEDOUT;
		if (r < 0)
			return -errno;
		got = read(fd, ret_answer + bytes, STORE_ANSWER_BYTES - bytes);
		if (got < 0)
			return -errno;
		bytes += (size_t)got;
		ret_answer[bytes] = '\0';
		if (got == 0)
			return 0;
	}
}

int barrier_wait(uint64_t wait_ms, char *ret_answer)
{
	uint64_t deadline_ms = clock_steady_ms() + wait_ms;
	int ends[2], r;

	ret_answer[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	r = sd_pid_notify_with_fds(0, 0, "BARRIER=1", &ends[1], 1);
	close(ends[1]);
	if (r == 0)
		r = -ENOTCONN;
	else if (r > 0)
		r = read_answer(ends[0], deadline_ms, ret_answer);
	close(ends[0]);
	if (r == 0 && getenv(STORE_ANSWER_VARIABLE) && !store_answer_is_whole(ret_answer))
		r = -ENODATA;
	return r;
}
