/* A process of gpuwm that aborts says so: libuv and libc abort without a word. */
#ifndef GPUWM_SERVICE_ABORT_LINE_H
#define GPUWM_SERVICE_ABORT_LINE_H

/* From now on SIGABRT writes one line to stderr before it ends the process: another one for an abort() of the process
 * itself than for a signal that another process sent. Never waits for a reader of stderr. */
void abort_line_begin(const char *program);

#endif
