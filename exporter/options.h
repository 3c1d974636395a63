/* The command line. */
#ifndef GPUWM_EXPORTER_OPTIONS_H
#define GPUWM_EXPORTER_OPTIONS_H

#include "address.h"

struct options {
	const char *listen; /* as it was written */
	struct address address;
	const char *socket; /* gpuwmd's; NULL: the usual one */
};

/* Returns 0, or 1 if help or version was printed and there is nothing to do. Fails with -EINVAL, and
 * logs why. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
