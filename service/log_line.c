#include "log_line.h"

#include "../base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The longest line of a service. */
#define TEXT_BYTES 3072
/* The longest line of log_line_write. It is less than a page, so a pipe that polls as writable takes a whole line. */
#define LINE_BYTES 2048

static const struct {
	const char *name;
	int priority; /* as in syslog.h, which has the same macro names as daemon/base/log.h */
} levels[LOG_LEVELS] = {
	[LOG_LEVEL_ERROR] = {"error", 3},
	[LOG_LEVEL_WARNING] = {"warning", 4},
	[LOG_LEVEL_INFO] = {"info", 6},
	[LOG_LEVEL_DEBUG] = {"debug", 7},
};

const char *log_level_name(enum log_level level)
{
	return levels[level].name;
}

int log_level_priority(enum log_level level)
{
	return levels[level].priority;
}

/* If systemd has connected stderr to the journal, it names that stream in the environment as
 * "device:inode". */
bool log_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == device && st.st_ino == inode;
}

static bool is_dated;

void log_line_date(void)
{
	is_dated = true;
}

void log_time(char text[LOG_TIME_BYTES])
{
	struct timespec now;
	struct tm parts;
	size_t used;

	text[0] = '\0';
	if (!is_dated || clock_gettime(CLOCK_REALTIME, &now) < 0 || !gmtime_r(&now.tv_sec, &parts))
		return;
	used = strftime(text, LOG_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text + used, LOG_TIME_BYTES - used, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

size_t log_line(char *line, size_t size, const char *program, enum log_level level, const char *format,
		va_list arguments)
{
	char text[TEXT_BYTES], time[LOG_TIME_BYTES];
	size_t used;

	log_time(time);
	if (program)
		used = (size_t)snprintf(line, size, "%s%s%s: %s: ", time, time[0] ? " " : "", program,
					levels[level].name);
	else
		used = (size_t)snprintf(line, size, "<%d>", levels[level].priority);
	/* Text that a peer chose must not make lines of its own, nor change how the line is
	 * read. */
	if (vsnprintf(text, sizeof(text), format, arguments) > 0)
		used += utf8_show(text, line + used, size - used - 1);
	line[used++] = '\n';
	return used;
}

int log_line_put(const char *line, size_t bytes)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	ssize_t written;

	if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
		return EAGAIN;
	written = write(STDERR_FILENO, line, bytes);
	if (written < 0)
		return errno;
	return (size_t)written == bytes ? 0 : ENOSPC; /* the rest found no room */
}

void log_line_write(const char *program, enum log_level level, const char *format, va_list arguments)
{
	char line[LINE_BYTES];
	size_t bytes =
		log_line(line, sizeof(line), log_is_journal() ? NULL : program, level, format, arguments);

	/* If the log can't be written, there is nowhere to say so. */
	(void)log_line_put(line, bytes);
}
