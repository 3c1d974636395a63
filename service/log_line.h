/* The format of a log line. Each program decides when it writes one, and whether writing may
 * wait. */
#ifndef GPUWM_SERVICE_LOG_LINE_H
#define GPUWM_SERVICE_LOG_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVELS };
const char *log_level_name(enum log_level level);

/* Returns whether stderr is the journal. */
bool log_is_journal(void);

/* Writes "<4>...\n" for the journal (program NULL), else "program: warning: ...\n". The text is shown as utf8_show
 * shows it, and is cut if the line would be longer than `size`. Returns the number of bytes. There
 * is no terminating zero. */
size_t log_line(char *line, size_t size, const char *program, enum log_level level, const char *format,
		va_list arguments) __attribute__((format(printf, 5, 0)));

#endif
