#include "log_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *name;
	int priority; /* as in syslog.h, which has the same macro names as daemon/log.h */
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

/* systemd tells the stream that it connected to stderr as "device:inode". */
bool log_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == device && st.st_ino == inode;
}

size_t log_line(char *line, size_t size, const char *program, bool journal, enum log_level level,
		const char *format, va_list arguments)
{
	size_t used, room;
	int added;

	if (journal)
		used = (size_t)snprintf(line, size, "<%d>", levels[level].priority);
	else
		used = (size_t)snprintf(line, size, "%s: %s: ", program, levels[level].name);
	room = size - used - 1; /* for the newline */
	added = vsnprintf(line + used, room, format, arguments);
	if (added > 0) {
		size_t end = used + ((size_t)added < room ? (size_t)added : room - 1);
		/* Texts of others must not make lines of their own. */
		for (; used < end; used++) {
			if ((unsigned char)line[used] < ' ' || line[used] == 0x7f)
				line[used] = '?';
		}
	}
	line[used++] = '\n';
	return used;
}
