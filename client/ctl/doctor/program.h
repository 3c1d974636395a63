/* Other programs, and children, with a limit of time. */
#ifndef GPUWM_CTL_DOCTOR_PROGRAM_H
#define GPUWM_CTL_DOCTOR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A driver that starts 16 GPUs without persistence mode takes half a minute. */
#define PROBE_MS 60000
#define PROGRAM_MS 5000 /* systemctl, while systemd reloads */

/* The limit; for tests, $GPUWM_DOCTOR_LIMIT_MS if that is shorter. */
int64_t program_limit(int64_t limit_ms);

/* Reads until the other side closes, and ends the text with a zero. Bytes that have no room are read and dropped. Returns 0.
 * -ETIMEDOUT: the time was over, and ret_text has what came until then; or the errno of read(2). */
int program_read(int fd, int64_t limit_ms, char *ret_text, size_t size);

/* Takes the exit status of a child that closed its pipe. If `kill_it`, first kills its process group. A child that hangs in the
 * kernel is left alone: then *ret_status is as if SIGKILL had ended it. */
void program_end(pid_t pid, bool kill_it, int *ret_status);

/* Runs a program, found in $PATH if its name has no slash, whose output comes into ret_text, errors included if `errors`.
 * Returns its wait status. -ENOENT: there is no such program; -ETIMEDOUT, as above; or another errno. */
int program_run(const char *const *words, int64_t limit_ms, bool errors, char *ret_text, size_t size);

/* Finds a program of gpuwm as gpuwmd finds its loader: beside gpuwmctl, or in ../libexec/gpuwm. False: it is not there, and
 * ret_path has the first place. */
bool program_find(const char *name, char *ret_path, size_t size);

#endif
