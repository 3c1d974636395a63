#include "log.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
