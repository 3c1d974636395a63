/* The command line of a service: flags with long names, which getopt_long reads. */
#ifndef GPUWM_SERVICE_FLAGS_H
#define GPUWM_SERVICE_FLAGS_H

#include <getopt.h>
#include <stdint.h>

/* A day: a longer time is a mistake. */
#define FLAG_SECONDS_MAX 86400

/* Logs what is wrong with a flag, and that `program --help` tells the flags. Returns -EINVAL. */
int flag_wrong(const char *program, const char *flag, const char *what);

/* Begins with the first argument. flags_next then returns the `val` of the next flag, whose value is in optarg; -1 after the last
 * flag, when optind is the first other argument; -EINVAL, after logging why, for an unknown flag or one without its value.
 * Threads: one, as for getopt. */
void flags_begin(void);
int flags_next(const char *program, int argc, char *const *argv, const struct option *flags);

/* Sets *ret_ms to a number of seconds that may have a fraction, of least_ms up to a day. Returns 0, or -EINVAL after logging why. */
int flag_seconds(const char *program, const char *flag, const char *text, unsigned least_ms, uint64_t *ret_ms);

#endif
