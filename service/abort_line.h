/* A line in the log for each process of gpuwm that aborts: libuv and libc abort without a word. */
#ifndef GPUWM_SERVICE_ABORT_LINE_H
#define GPUWM_SERVICE_ABORT_LINE_H

/* From now on SIGABRT writes one line to stderr before it ends the process. The line says whether
 * the process itself called abort() or another process sent the signal. The handler never waits for
 * a reader of stderr. */
void abort_line_begin(const char *program);

#endif
