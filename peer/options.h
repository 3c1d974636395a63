/* The command line. */
#ifndef GPUWM_PEER_OPTIONS_H
#define GPUWM_PEER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_DEFAULT "/etc/gpuwm/gpuwmd.conf"

struct options {
	const char *config;
	const char *socket; /* gpuwmd's; NULL: the usual one */
	bool list, check; /* ask the other nodes, or only read the settings */
	uint64_t timeout_ms; /* of list */
};

/* Returns 0, or 1 if help or version was printed and there is nothing to do. Fails with -EINVAL, and logs why. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
