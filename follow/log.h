/* Writes log lines to stderr: "gpuwm-follow: warning: ...", or with journald's priorities if stderr is the journal. */
#ifndef GPUWM_FOLLOW_LOG_H
#define GPUWM_FOLLOW_LOG_H

#include "../service/log_line.h"

/* As log_line_write. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)

/* A trouble that may last. log_trouble writes a warning, but only if the text differs from the last one. log_passing writes an info
 * in the same way, for troubles that usually pass by themselves. log_trouble_over writes that the trouble is over, if there was one. */
struct trouble {
	char text[1024]; /* "": there is none */
};
void log_trouble(struct trouble *trouble, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_passing(struct trouble *trouble, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_trouble_over(struct trouble *trouble, const char *what);

#endif
