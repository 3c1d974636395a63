/* The lines of the log: their format, and how they get to stderr. No service waits for who reads its log. */
#ifndef GPUWM_SERVICE_LOG_LINE_H
#define GPUWM_SERVICE_LOG_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVELS };
const char *log_level_name(enum log_level level);
/* Returns its number in syslog and in the journal. */
int log_level_priority(enum log_level level);

/* Returns whether stderr is the journal. */
bool log_is_journal(void);

/* From here on the lines of this process begin with the time, unless the journal gets them: it has times of its own. */
void log_line_date(void);

/* The room for a time in UTC: "2026-11-26T05:27:21.123Z". */
#define LOG_TIME_BYTES 32
/* Writes the present time, or "" if lines have none. */
void log_time(char text[LOG_TIME_BYTES]);

/* Writes "<4>...\n" for the journal (program NULL), else "TIME program: warning: ...\n". The text is shown as utf8_show
 * shows it, and is cut if the line would be longer than `size`. Returns the number of bytes. There
 * is no terminating zero. */
size_t log_line(char *line, size_t size, const char *program, enum log_level level, const char *format,
		va_list arguments) __attribute__((format(printf, 5, 0)));

/* Writes a line to stderr, unless that would block. A pipe takes whole lines, as long as they are shorter than a page. Returns
 * 0, or an errno: EAGAIN if nobody reads, ENOSPC if there was room for a part only. */
int log_line_put(const char *line, size_t bytes);

/* Formats a line of at most 2 KiB and writes it to stderr. If writing would block, the line is dropped: a log that nobody reads
 * must not stop a service. Threads: any thread may call it. */
void log_line_write(const char *program, enum log_level level, const char *format, va_list arguments)
	__attribute__((format(printf, 3, 0)));

#endif
