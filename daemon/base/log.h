/* Log lines to stderr with journald's level prefixes ("<4>") when stderr is the journal, else with names. */
#ifndef GPUWM_DAEMON_LOG_H
#define GPUWM_DAEMON_LOG_H

#include "../../service/log_line.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- journald ----
 * Log lines with fields, which journald stores beside the text. libsystemd's own call may wait for journald; these functions never do. */

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* One line each: neither has a newline in it. */
struct journal_field {
	const char *name, *value; /* value NULL: the field is left out */
};

/* Sends a line with these fields to journald at this socket. Returns false if journald did not take it: it is not there, it is busy, or
 * the kernel has no room. */
bool journal_send(const char *socket_path, const struct journal_field *fields, size_t count);

/* ---- lines ---- */

void log_init(enum log_level level);
/* For tests: journald is at this socket. The text must stay. */
void log_journal_at(const char *path);
/* Fails with -EINVAL if there is no such level. */
int log_level_parse(const char *name, enum log_level *ret);

/* Writes a line, and never waits: if nobody reads the pipe and it is full, the line is left out. As soon as there is room again, a
 * line says how many were left out. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with fields, which only journald stores: if stderr is the journal, the line goes to journald itself. If journald does not take
 * it, or stderr is something else, the line goes to stderr without the fields. */
void log_write_fields(enum log_level level, const struct journal_field *fields, size_t count,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
