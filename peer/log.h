/* Log lines of gpuwm-peer on stderr, with journald's priorities if stderr is the journal. */
#ifndef GPUWM_PEER_LOG_H
#define GPUWM_PEER_LOG_H

#include "../service/log_line.h"

/* As log_line_write. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)

#endif
