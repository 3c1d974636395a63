#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer lines are cut: message and detail of an error are 1,023 bytes each. */
#define LINE_BYTES 3072

static const struct {
	const char *name;
	int priority; /* as in syslog.h, which has the same macro names as log.h */
} levels[] = {
	[LOG_LEVEL_ERROR] = {"error", 3},
	[LOG_LEVEL_WARNING] = {"warning", 4},
	[LOG_LEVEL_INFO] = {"info", 6},
	[LOG_LEVEL_DEBUG] = {"debug", 7},
};

static enum log_level log_threshold = LOG_LEVEL_INFO;
static bool to_journal;

/* systemd tells the stream that it connected to stderr as "device:inode". */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == device && st.st_ino == inode;
}

void log_init(enum log_level level)
{
	log_threshold = level;
	to_journal = stderr_is_journal();
}

int log_level_parse(const char *name, enum log_level *ret)
{
	for (unsigned i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (strcmp(name, levels[i].name) == 0) {
			*ret = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_write(enum log_level level, const char *format, ...)
{
	char line[LINE_BYTES];
	size_t used, room;
	va_list arguments;
	int added;

	if (level > log_threshold)
		return;
	if (to_journal)
		used = (size_t)snprintf(line, sizeof(line), "<%d>", levels[level].priority);
	else
		used = (size_t)snprintf(line, sizeof(line), "gpuwmd: %s: ", levels[level].name);

	room = sizeof(line) - used - 1; /* for the newline */
	va_start(arguments, format);
	added = vsnprintf(line + used, room, format, arguments);
	va_end(arguments);
	if (added > 0) {
		size_t end = used + ((size_t)added < room ? (size_t)added : room - 1);
		/* Texts of peers must not make lines of their own. */
		for (; used < end; used++) {
			if ((unsigned char)line[used] < ' ' || line[used] == 0x7f)
				line[used] = '?';
		}
	}
	line[used++] = '\n';
	/* A log that can't be written has nowhere to say so. */
	if (write(STDERR_FILENO, line, used) < 0)
		return;
}
