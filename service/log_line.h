/* What a line of a log looks like. When it is written, and whether writing may wait, is each program's. */
#ifndef GPUWM_SERVICE_LOG_LINE_H
#define GPUWM_SERVICE_LOG_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVELS };
const char *log_level_name(enum log_level level);

/* Whether stderr is the journal. */
bool log_is_journal(void);

/* "<4>...\n" for the journal, else "program: warning: ...\n"; the text is shown as utf8_show makes it, what is longer
 * than size is cut. Returns the bytes; no zero byte follows. */
size_t log_line(char *line, size_t size, const char *program, bool journal, enum log_level level,
		const char *format, va_list arguments) __attribute__((format(printf, 6, 0)));

#endif
