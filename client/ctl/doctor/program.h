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

/* Reads until the other side closes, and ends the text with a zero. Drops bytes for which ret_text has no room. Returns 0. Fails
 * with -ETIMEDOUT when the time is over: ret_text then has what came in time. Fails with another -errno if read(2) fails. */
int program_read(int fd, int64_t limit_ms, char *ret_text, size_t size);

/* Collects the exit status of a child that has closed its pipe. If `kill_it` is true, kills the child's process group first. If
 * the child hangs in the kernel, the function does not wait for it, and sets *ret_status as if SIGKILL had ended it. */
void program_end(pid_t pid, bool kill_it, int *ret_status);

/* Runs a program, which is searched in $PATH if its name has no slash. It gets this process's environment, but for variables such as
 * GPUWM_SOCKET that are about gpuwmctl and mean something else to other programs. Sets ret_text to its output, with stderr if `errors` is
 * true. Returns the wait status. Fails with -ENOENT if there is no such program, with -ETIMEDOUT as above, or with another -errno. */
int program_run(const char *const *words, int64_t limit_ms, bool errors, char *ret_text, size_t size);
/* The same without this variable, too, unless it is NULL. */
int program_run_without(const char *variable, const char *const *words, int64_t limit_ms, bool errors,
			char *ret_text, size_t size);

/* Finds a program of gpuwm where gpuwmd looks for its loader: beside gpuwmctl, or in ../libexec/gpuwm. Returns false if it is in
 * neither place; ret_path then names the first one. */
bool program_find(const char *name, char *ret_path, size_t size);

#endif
