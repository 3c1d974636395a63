/* Writes log lines to stderr: "gpuwm-keeper: warning: ...", or with journald's priorities if stderr
 * is the journal. */
#ifndef GPUWM_KEEPER_LOG_H
#define GPUWM_KEEPER_LOG_H

#include "../service/log_line.h"

#include <stdint.h>

/* As log_line_write. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)

/* Limits lines that others can cause as often as they like: one line of a kind in ten seconds. */
struct log_limit {
	uint64_t next_ms; /* no line before this time */
	unsigned left_out;
};
/* Returns whether a line may be written now. Then *ret_left_out is how many lines were left out
 * since the last one. */
int log_allowed(struct log_limit *limit, uint64_t now_ms, unsigned *ret_left_out);

#endif
