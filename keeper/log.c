#include "log.h"

#include <poll.h>
#include <stdarg.h>
#include <unistd.h>

/* Longer lines are cut. It is less than a page, so a pipe that polls as writable takes a whole
 * line. */
#define LINE_BYTES 2048
#define LIMIT_MS 10000

void log_write(enum log_level level, const char *format, ...)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	char line[LINE_BYTES];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	bytes = log_line(line, sizeof(line), log_is_journal() ? NULL : "gpuwm-keeper", level, format,
			 arguments);
	va_end(arguments);
	if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
		return;
	/* If the log can't be written, there is nowhere to say so. */
	if (write(STDERR_FILENO, line, bytes) < 0)
		return;
}

int log_allowed(struct log_limit *limit, uint64_t now_ms, unsigned *ret_left_out)
{
	if (now_ms < limit->next_ms) {
		limit->left_out++;
		return false;
	}
	*ret_left_out = limit->left_out;
	*limit = (struct log_limit){.next_ms = now_ms + LIMIT_MS};
	return true;
}
