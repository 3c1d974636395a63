/* Log lines to stderr with journald's level prefixes ("<4>") when stderr is the journal, else with names. */
#ifndef GPUWM_DAEMON_LOG_H
#define GPUWM_DAEMON_LOG_H

#include "../../service/log_line.h"

void log_init(enum log_level level);
/* Fails with -EINVAL if there is no such level. */
int log_level_parse(const char *name, enum log_level *ret);

/* Writes a line, and never waits: if nobody reads the pipe and it is full, the line is left out. As soon as there is room again, a
 * line says how many were left out. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
