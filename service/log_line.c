#include "log_line.h"

#include "../proto/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest line of a service. */
#define TEXT_BYTES 3072

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

size_t log_line(char *line, size_t size, const char *program, enum log_level level, const char *format,
		va_list arguments)
{
	char text[TEXT_BYTES];
	size_t used;

	if (program)
		used = (size_t)snprintf(line, size, "%s: %s: ", program, levels[level].name);
	else
		used = (size_t)snprintf(line, size, "<%d>", levels[level].priority);
	/* Text that a peer chose must not make lines of its own, nor change how the line is
	 * read. */
	if (vsnprintf(text, sizeof(text), format, arguments) > 0)
		used += utf8_show(text, line + used, size - used - 1);
	line[used++] = '\n';
	return used;
}
