#include "log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* Longer lines are cut: message and detail of an error are 1,023 bytes each. */
#define LINE_BYTES 3072

static enum log_level log_threshold = LOG_LEVEL_INFO;
static bool to_journal;

void log_init(enum log_level level)
{
	log_threshold = level;
	to_journal = log_is_journal();
}

int log_level_parse(const char *name, enum log_level *ret)
{
	for (int level = 0; level < LOG_LEVELS; level++) {
		if (strcmp(name, log_level_name((enum log_level)level)) == 0) {
			*ret = (enum log_level)level;
			return 0;
		}
	}
	return -EINVAL;
}

/* A pipe that polls as writable takes a line whole: it is less than a page. A log that can't be written has nowhere to
 * say so. */
static bool put(const char *line, size_t bytes)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT && write(STDERR_FILENO, line, bytes) >= 0;
}

__attribute__((format(printf, 1, 2))) static bool put_warning(const char *format, ...)
{
	char line[LINE_BYTES];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	bytes = log_line(line, sizeof(line), to_journal ? NULL : "gpuwmd", LOG_LEVEL_WARNING, format,
			 arguments);
	va_end(arguments);
	return put(line, bytes);
}

void log_write(enum log_level level, const char *format, ...)
{
	static unsigned long lost;
	char line[LINE_BYTES];
	va_list arguments;
	size_t bytes;

	if (level > log_threshold)
		return;
	if (lost > 0 && put_warning("nobody read gpuwmd's stderr: lines that are not there: %lu", lost))
		lost = 0;
	va_start(arguments, format);
	bytes = log_line(line, sizeof(line), to_journal ? NULL : "gpuwmd", level, format, arguments);
	va_end(arguments);
	lost += lost > 0 || !put(line, bytes);
}
