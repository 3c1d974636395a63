/* The command line. */
#ifndef GPUWM_EXPORTER_OPTIONS_H
#define GPUWM_EXPORTER_OPTIONS_H

#include "address.h"

#include <stdbool.h>

struct options {
	const char *listen; /* as it was written */
	struct address address;
	const char *socket; /* gpuwmd's; NULL: the usual one */
	const char *token_file; /* NULL: there is no token, so nobody sees more than totals */
	bool no_token; /* everybody sees everything */
};

/* Returns 0, or 1 if help or version was printed and there is nothing to do. Fails with -EINVAL, and
 * logs why. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
