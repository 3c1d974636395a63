/* This process of gpuwm: what a program calls first, what its abort leaves in the log, the file that it runs, and the limits on its
 * threads. */
#ifndef GPUWM_SERVICE_PROCESS_H
#define GPUWM_SERVICE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* ---- its begin ---- */

/* Opens /dev/null in the place of each standard stream that is closed, as whoever starts a service may have left them, so that the
 * numbers 0 to 2 are never another file: log lines would go there. Call it first in a program. Returns 0. Fails with -errno
 * if a stream is still missing. */
int streams_open(void);

/* Protects this process against other processes of the same user: by default the kernel lets them trace a program and take its
 * descriptors. From now on only root may trace this process and read its memory and its descriptors. The kernel
 * writes no core of it, and its files in /proc are root's. Call it first in a program: exec undoes it. Returns 0. Fails
 * with -errno. */
int privacy_begin(void);

/* ---- its abort ---- */

/* libuv and libc abort without a word. From now on SIGABRT writes one line to stderr before it ends the process. The line says
 * whether the process itself called abort() or another process sent the signal. The handler never waits for a reader of stderr.
 * log_begin comes before. */
void abort_line_begin(void);

/* ---- its file ---- */

/* Sets ret_path to the path of the program's file, or to "" if the kernel does not tell it. Returns whether that file was removed, or
 * replaced by another one, since the program was started. Touches no disk. Threads may call it. */
bool own_program_is_gone(char *ret_path, size_t size);

/* ---- its limits ---- */

/* Why this process can't make a thread or a process. Writes a text for an error's detail: the limits that are set and count both,
 * with their figures, then the remedy. */
void task_limits_explain(char *ret_text, size_t size);

#endif
