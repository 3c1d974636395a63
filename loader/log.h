/* What gpuwm-loader logs to stderr: only what it can't tell gpuwmd. */
#ifndef GPUWM_LOADER_LOG_H
#define GPUWM_LOADER_LOG_H

/* Writes "TIME gpuwm-loader: ..." (log_line_date) in one line that hides nothing: file names are part of such lines. A
 * line of more than 4 KiB is cut. */
void loader_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
