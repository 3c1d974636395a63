#include "log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer lines are cut. Less than a page: a pipe that polls as writable takes it whole. */
#define LINE_BYTES 2048
#define LIMIT_MS 10000

static const struct {
	const char *name;
	int priority;
} levels[] = {
	[LOG_LEVEL_ERROR] = {"error", 3},
	[LOG_LEVEL_WARNING] = {"warning", 4},
	[LOG_LEVEL_INFO] = {"info", 6},
};

/* systemd tells the stream that it connected to stderr as "device:inode". */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == device && st.st_ino == inode;
}

void log_write(enum log_level level, const char *format, ...)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	char line[LINE_BYTES];
	size_t used, room;
	va_list arguments;
	int added;

	if (stderr_is_journal())
		used = (size_t)snprintf(line, sizeof(line), "<%d>", levels[level].priority);
	else
		used = (size_t)snprintf(line, sizeof(line), "gpuwm-keeper: %s: ", levels[level].name);

	room = sizeof(line) - used - 1; /* for the newline */
	va_start(arguments, format);
	added = vsnprintf(line + used, room, format, arguments);
	va_end(arguments);
	if (added > 0) {
		size_t end = used + ((size_t)added < room ? (size_t)added : room - 1);
		/* Texts of the program must not make lines of their own. */
		for (; used < end; used++) {
			if ((unsigned char)line[used] < ' ' || line[used] == 0x7f)
				line[used] = '?';
		}
	}
	line[used++] = '\n';
	if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
		return;
	/* A log that can't be written has nowhere to say so. */
	if (write(STDERR_FILENO, line, used) < 0)
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
