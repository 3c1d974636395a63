/* The log of a program: lines on stderr, which name its time, the program and their level, or have a priority ("<4>") if stderr is the
 * journal. A program never waits for who reads its log. */
#ifndef GPUWM_SERVICE_LOG_H
#define GPUWM_SERVICE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum log_level {
	/* Neither level nor priority, but the program's name, also in the journal: the journal is another program's. */
	LOG_PLAIN = -1,
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
	LOG_LEVELS
};
/* Fails with -EINVAL if there is no such level. */
int log_level_parse(const char *name, enum log_level *ret);

/* ---- the program ---- */

/* Names the program whose lines these are. Call it first: the text must stay. The program ignores SIGXFSZ from then on: a log, or anything
 * else, that may not grow beyond RLIMIT_FSIZE is an error, and no end. */
void log_begin(const char *program);
const char *log_program(void);
/* From here on only lines of this level and of those that matter more are written. Before that, this is LOG_LEVEL_INFO. */
void log_level_set(enum log_level level);
/* From here on lines begin with the time, unless the journal gets them: it has times of its own. */
void log_line_date(void);

/* ---- lines ---- */

/* Writes a line. Bytes that could make a line of their own, or hide something, are shown as utf8_show shows them; a line of more than
 * 3 KiB is cut. If nobody reads the pipe and it is full, the line is left out. As soon as there is room again, a line says how many were
 * left out. Threads: any thread may call it. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_plain(...) log_write(LOG_PLAIN, __VA_ARGS__)

/* Writes the bytes of a line, for whoever puts them out by itself: with its newline, without a terminating zero. Returns their number. */
size_t log_line(char *line, size_t size, enum log_level level, const char *format, va_list arguments)
	__attribute__((format(printf, 4, 0)));

/* ---- journald ----
 * Log lines with fields, which journald stores beside the text. libsystemd's own call may wait for journald; these functions never do. */

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* One line each: neither has a newline in it. */
struct journal_field {
	const char *name, *value; /* value NULL: the field is left out */
};

/* Sends a line with these fields to journald at this socket. Returns false if journald did not take it: it is not there, it is busy, or
 * the kernel has no room. Threads: one of the process's calls this and log_write_fields. */
bool journal_send(const char *socket_path, const struct journal_field *fields, size_t count);

/* As log_write, with fields, which only journald stores: if stderr is the journal, the line goes to journald itself. If journald does not
 * take it, or stderr is something else, the line goes to stderr without the fields. */
void log_write_fields(enum log_level level, const struct journal_field *fields, size_t count,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));
/* For tests: journald is at this socket. The text must stay. */
void log_journal_at(const char *path);

#endif
