#include "log.h"

#include "../base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Longer lines are cut: message and detail of an error are 1,023 bytes each. It is less than a page, so a pipe that polls as writable
 * takes a whole line. */
#define LINE_BYTES 3072
/* The room for a time in UTC: "2026-11-26T05:27:21.123Z ". */
#define TIME_BYTES 32

static const struct {
	const char *name;
	int priority; /* as in syslog.h, which has the same macro names as log.h */
} levels[LOG_LEVELS] = {
	[LOG_LEVEL_ERROR] = {"error", 3},
	[LOG_LEVEL_WARNING] = {"warning", 4},
	[LOG_LEVEL_INFO] = {"info", 6},
	[LOG_LEVEL_DEBUG] = {"debug", 7},
};

int log_level_parse(const char *name, enum log_level *ret)
{
	for (int level = 0; level < LOG_LEVELS; level++) {
		if (strcmp(name, levels[level].name) == 0) {
			*ret = (enum log_level)level;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- the program ---- */

static const char *log_name = "gpuwm";
static enum log_level log_threshold = LOG_LEVEL_INFO;
static bool is_dated;

void log_begin(const char *program)
{
	log_name = program;
	signal(SIGXFSZ, SIG_IGN);
}

const char *log_program(void)
{
	return log_name;
}

void log_level_set(enum log_level level)
{
	log_threshold = level;
}

void log_line_date(void)
{
	is_dated = true;
}

/* If systemd has connected stderr to the journal, it names that stream in the environment as
 * "device:inode". */
static bool log_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == device && st.st_ino == inode;
}

/* ---- lines ---- */

/* "" if lines have no time. */
static void log_time(char text[TIME_BYTES])
{
	struct timespec now;
	struct tm parts;
	size_t used;

	text[0] = '\0';
	if (!is_dated || clock_gettime(CLOCK_REALTIME, &now) < 0 || !gmtime_r(&now.tv_sec, &parts))
		return;
	used = strftime(text, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text + used, TIME_BYTES - used, ".%03dZ ", (int)(now.tv_nsec / 1000000));
}

size_t log_line(char *line, size_t size, enum log_level level, const char *format, va_list arguments)
{
	char text[LINE_BYTES], time[TIME_BYTES] = "";
	const bool to_journal = log_is_journal();
	size_t used;

	if (!to_journal)
		log_time(time);
	if (level == LOG_PLAIN)
		used = (size_t)snprintf(line, size, "%s%s: ", time, log_name);
	else if (to_journal)
		used = (size_t)snprintf(line, size, "<%d>", levels[level].priority);
	else
		used = (size_t)snprintf(line, size, "%s%s: %s: ", time, log_name, levels[level].name);
	/* Text that a peer chose must not make lines of its own, nor change how the line is
	 * read. */
	if (vsnprintf(text, sizeof(text), format, arguments) > 0)
		used += utf8_show(text, line + used, size - used - 1);
	line[used++] = '\n';
	return used;
}

/* Writes it unless that would block. A pipe takes whole lines, as long as they are shorter than a page. Returns 0, or an errno: EAGAIN if
 * nobody reads, ENOSPC if there was room for a part only. */
static int line_put(const char *line, size_t bytes)
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

__attribute__((format(printf, 1, 2))) static int put_warning(const char *format, ...)
{
	char line[LINE_BYTES];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	bytes = log_line(line, sizeof(line), LOG_LEVEL_WARNING, format, arguments);
	va_end(arguments);
	return line_put(line, bytes);
}

static int say_lost(unsigned long lost, int number)
{
	if (number == EAGAIN)
		return put_warning("nobody read %s's stderr: lines that are not there: %lu", log_name, lost);
	return put_warning("the log could not be written (%s): lines that are not there: %lu", strerror(number),
			   lost);
}

__attribute__((format(printf, 2, 0))) static void write_line(enum log_level level, const char *format,
							     va_list arguments)
{
	static atomic_ulong lost;
	static atomic_int lost_by; /* the errno of the first one */
	unsigned long before = atomic_exchange(&lost, 0); /* they are this thread's to tell */
	char line[LINE_BYTES];
	size_t bytes;
	int failed = 0;

	if (before > 0 && say_lost(before, lost_by) != 0)
		failed = lost_by;
	else
		before = 0;
	bytes = log_line(line, sizeof(line), level, format, arguments);
	if (!failed)
		failed = line_put(line, bytes);
	if (!failed)
		return;
	if (before == 0)
		lost_by = failed;
	atomic_fetch_add(&lost, before + 1);
}

void log_write(enum log_level level, const char *format, ...)
{
	va_list arguments;

	if (level > log_threshold)
		return;
	va_start(arguments, format);
	write_line(level, format, arguments);
	va_end(arguments);
}

/* ---- journald ---- */

/* An audit line has 2 KiB at most. A datagram may have 200 KiB. */
#define ENTRY_BYTES_MAX 8192
/* An audit line has 11 fields and the three of every line. */
#define FIELDS_MAX 16

/* The process's only one. It is never connected, so it survives journald's restarts. -1: none yet. */
static int journal_sock = -1;
static const char *journal_path = JOURNAL_SOCKET;

void log_journal_at(const char *path)
{
	journal_path = path;
}

bool journal_send(const char *socket_path, const struct journal_field *fields, size_t count)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char entry[ENTRY_BYTES_MAX];
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		if (!fields[i].value)
			continue;
		used += (size_t)snprintf(entry + used, sizeof(entry) - used, "%s=%s\n", fields[i].name,
					 fields[i].value);
		if (used >= sizeof(entry))
			return false;
	}
	if (journal_sock < 0)
		journal_sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (journal_sock < 0)
		return false;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	return sendto(journal_sock, entry, used, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
		      sizeof(address)) == (ssize_t)used;
}

__attribute__((format(printf, 4, 0))) static bool send_fields(enum log_level level,
							      const struct journal_field *fields, size_t count,
							      const char *format, va_list arguments)
{
	char text[LINE_BYTES], message[LINE_BYTES], priority[4];
	struct journal_field all[FIELDS_MAX] = {
		{"MESSAGE", message}, {"PRIORITY", priority}, {"SYSLOG_IDENTIFIER", log_name}};
	const size_t own = 3;

	vsnprintf(text, sizeof(text), format, arguments);
	utf8_show(text, message, sizeof(message));
	snprintf(priority, sizeof(priority), "%d", levels[level].priority);
	if (count > FIELDS_MAX - own)
		count = FIELDS_MAX - own;
	memcpy(all + own, fields, count * sizeof(*fields));
	return journal_send(journal_path, all, own + count);
}

void log_write_fields(enum log_level level, const struct journal_field *fields, size_t count,
		      const char *format, ...)
{
	va_list arguments;
	bool sent = false;

	if (level > log_threshold)
		return;
	if (log_is_journal()) {
		va_start(arguments, format);
		sent = send_fields(level, fields, count, format, arguments);
		va_end(arguments);
	}
	if (sent)
		return;
	va_start(arguments, format);
	write_line(level, format, arguments);
	va_end(arguments);
}
