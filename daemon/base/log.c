#include "log.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- journald ---- */

/* An audit line has 2 KiB at most. A datagram may have 200 KiB. */
#define ENTRY_BYTES_MAX 8192

/* The process's only one. It is never connected, so it survives journald's restarts. -1: none yet. */
static int journal_sock = -1;

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

/* ---- lines ---- */

/* Longer lines are cut: message and detail of an error are 1,023 bytes each. */
#define LINE_BYTES 3072

/* An audit line has 11 fields and the three of every line. */
#define FIELDS_MAX 16

static enum log_level log_threshold = LOG_LEVEL_INFO;
static bool to_journal;
static const char *journal_path = JOURNAL_SOCKET;

void log_init(enum log_level level)
{
	log_threshold = level;
	to_journal = log_is_journal();
}

void log_journal_at(const char *path)
{
	journal_path = path;
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

__attribute__((format(printf, 1, 2))) static int put_warning(const char *format, ...)
{
	char line[LINE_BYTES];
	va_list arguments;
	size_t bytes;

	va_start(arguments, format);
	bytes = log_line(line, sizeof(line), to_journal ? NULL : "gpuwmd", LOG_LEVEL_WARNING, format,
			 arguments);
	va_end(arguments);
	return log_line_put(line, bytes);
}

static int say_lost(unsigned long lost, int number)
{
	if (number == EAGAIN)
		return put_warning("nobody read gpuwmd's stderr: lines that are not there: %lu", lost);
	return put_warning("the log could not be written (%s): lines that are not there: %lu", strerror(number),
			   lost);
}

__attribute__((format(printf, 2, 0))) static void write_line(enum log_level level, const char *format,
							     va_list arguments)
{
	static unsigned long lost;
	static int lost_by; /* the errno of the first one */
	char line[LINE_BYTES];
	size_t bytes;
	int failed;

	if (lost > 0 && say_lost(lost, lost_by) == 0)
		lost = 0;
	bytes = log_line(line, sizeof(line), to_journal ? NULL : "gpuwmd", level, format, arguments);
	failed = lost > 0 ? lost_by : log_line_put(line, bytes);
	if (failed && lost++ == 0)
		lost_by = failed;
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

__attribute__((format(printf, 4, 0))) static bool send_fields(enum log_level level,
							      const struct journal_field *fields, size_t count,
							      const char *format, va_list arguments)
{
	char text[LINE_BYTES], message[LINE_BYTES], priority[4];
	struct journal_field all[FIELDS_MAX] = {
		{"MESSAGE", message}, {"PRIORITY", priority}, {"SYSLOG_IDENTIFIER", "gpuwmd"}};
	const size_t own = 3;

	vsnprintf(text, sizeof(text), format, arguments);
	utf8_show(text, message, sizeof(message));
	snprintf(priority, sizeof(priority), "%d", log_level_priority(level));
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
	if (to_journal) {
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
