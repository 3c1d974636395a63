/* What the command line says. */
#ifndef GPUWM_KEEPER_OPTIONS_H
#define GPUWM_KEEPER_OPTIONS_H

#include "restart.h"
#include "../proto/limits.h"

#include <stddef.h>

/* Docker sends SIGKILL ten seconds after SIGTERM: what is to be said is said before. gpuwmd needs two. */
#define STOP_TIMEOUT_MS 8000
/* As TimeoutStartSec in gpuwmd's unit. gpuwmd extends it where it has to adopt much. */
#define START_TIMEOUT_MS 60000
/* None by default: a program that does not feed it would be killed for ever. */
#define WATCHDOG_MS 0

struct options {
	size_t store_max;
	uint64_t start_ms; /* 0: for ever */
	uint64_t stop_ms;
	uint64_t watchdog_ms; /* 0: none */
	uint64_t restart_ms; /* the longest delay */
	const char *runtime_dir; /* NULL: the usual ones */
	char *const *command; /* ends with NULL */
};

/* 0; 1 when help or version was printed and there is nothing to do; -EINVAL, logged. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
