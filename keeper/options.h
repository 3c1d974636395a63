/* The command line. */
#ifndef GPUWM_KEEPER_OPTIONS_H
#define GPUWM_KEEPER_OPTIONS_H

#include "child.h"
#include "../base/limits.h"

#include <stdint.h>

/* Docker sends SIGKILL ten seconds after SIGTERM, and the keeper logs what it has to say before
 * that. gpuwmd needs two seconds. */
#define STOP_TIMEOUT_MS 8000
/* The value of TimeoutStartSec in gpuwmd's unit. gpuwmd extends it if it has to adopt much. */
#define START_TIMEOUT_MS 60000
/* No watchdog by default: the keeper would kill a program that does not feed it again and again. */
#define WATCHDOG_MS 0

struct options {
	uint64_t store_max;
	uint64_t start_ms; /* 0: for ever */
	uint64_t stop_ms;
	uint64_t watchdog_ms; /* 0: none */
	uint64_t restart_ms; /* the longest delay before a restart */
	const char *runtime_dir; /* NULL: the usual folders */
	const char *take_over; /* the path of the take-over socket; NULL: none */
	uint64_t generation; /* a keeper of a lower one gets nothing */
	const char *ready_file; /* is there while the program is ready; NULL: none */
	char *const *command; /* ends with NULL */
};

/* Returns 0, or 1 if help or version was printed and there is nothing to do. Fails with -EINVAL,
 * and logs why. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
