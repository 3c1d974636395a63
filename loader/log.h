/* What gpuwm-loader says on stderr: what nobody is told otherwise. */
#ifndef GPUWM_LOADER_LOG_H
#define GPUWM_LOADER_LOG_H

/* "gpuwm-loader: ...", in one line in which all is seen: file names are part of such lines. What is longer than 4 KiB is cut. */
void loader_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
