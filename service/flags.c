#include "flags.h"

#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int flag_wrong(const char *program, const char *flag, const char *what)
{
	log_error("%s: %s (%s --help tells the flags)", flag, what, program);
	return -EINVAL;
}

void flags_begin(void)
{
	opterr = 0;
	optind = 0; /* getopt begins again */
}

int flags_next(const char *program, int argc, char *const *argv, const struct option *flags)
{
	int flag = getopt_long(argc, argv, "+:", flags, NULL);

	if (flag == ':')
		return flag_wrong(program, argv[optind - 1], "its value is missing");
	if (flag == '?')
		return flag_wrong(program, argv[optind - 1], "there is no such flag, or it takes no value");
	return flag;
}

int flag_seconds(const char *program, const char *flag, const char *text, unsigned least_ms, uint64_t *ret_ms)
{
	char *end, what[80];
	double seconds = strtod(text, &end);

	if (text[0] && !text[strspn(text, "0123456789.")] && !*end && seconds <= FLAG_SECONDS_MAX &&
	    seconds * 1000 >= least_ms) {
		*ret_ms = (uint64_t)(seconds * 1000 + 0.5);
		return 0;
	}
	snprintf(what, sizeof(what), "seconds from %g to %d are wanted, as 8 or 0.5", least_ms / 1000.0,
		 FLAG_SECONDS_MAX);
	return flag_wrong(program, flag, what);
}
