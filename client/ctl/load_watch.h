/* A load whose progress is shown on stderr until it ends. */
#ifndef GPUWM_CTL_LOAD_WATCH_H
#define GPUWM_CTL_LOAD_WATCH_H

#include "answer.h"

#include <stdbool.h>

struct load_result {
	uint64_t job;
	json_t *told; /* it, as `jobs` tells it; NULL: its gpuwmd went away */
	char version[33];
};

enum load_interrupt {
	LOAD_GOES_ON, /* Ctrl-C says so */
	LOAD_CANCELLED, /* Ctrl-C cancels it */
};

/* Starts the load and waits for its end. EXIT_DONE when the version is ready: what is in *ret_result is the
 * caller's to clear, and told->error may say that the alias was not moved. Else an exit code, after printing why. A second Ctrl-C
 * ends gpuwmctl. */
int load_watch(struct gpuwm_client *client, const struct gpuwm_load_options *options,
	       enum load_interrupt interrupt, struct load_result *ret_result);
void load_result_clear(struct load_result *result);

/* An absolute path, that of a snapshot for hf:ORG/NAME, or a version of a peer as it stands, for free(); NULL after printing why. */
char *load_source(const char *source);

#endif
