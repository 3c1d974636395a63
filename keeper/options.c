#include "options.h"
#include "log.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LISTEN_FDNAMES has room for this many names of one letter. */
#define STORE_MAX_MAX 65536
/* A day: a longer time is a mistake. */
#define SECONDS_MAX 86400

enum {
	FLAG_STORE = 256,
	FLAG_START,
	FLAG_STOP,
	FLAG_WATCHDOG,
	FLAG_RESTART,
	FLAG_FOLDER,
	FLAG_HELP,
	FLAG_VERSION
};

static const struct option flags[] = {
	{"store-max", required_argument, NULL, FLAG_STORE},
	{"start-timeout", required_argument, NULL, FLAG_START},
	{"stop-timeout", required_argument, NULL, FLAG_STOP},
	{"watchdog", required_argument, NULL, FLAG_WATCHDOG},
	{"restart-delay", required_argument, NULL, FLAG_RESTART},
	{"runtime-dir", required_argument, NULL, FLAG_FOLDER},
	{"help", no_argument, NULL, FLAG_HELP},
	{"version", no_argument, NULL, FLAG_VERSION},
	{0},
};

static int print_help(void)
{
	printf("usage: gpuwm-keeper [FLAG]... -- PROGRAM [ARGUMENT]...\n\n"
	       "Runs PROGRAM (gpuwmd) where there is no systemd: keeps its descriptors, starts it again\n"
	       "when it ends, passes signals on, reaps orphans. SIGUSR1 upgrades: it ends PROGRAM and starts it anew.\n\n"
	       "Flags:\n"
	       "  --store-max N            how many descriptors PROGRAM may store; by default %d\n"
	       "  --start-timeout SECONDS  kill PROGRAM if it is not ready so long after its start; by default %g; 0: never\n"
	       "  --stop-timeout SECONDS   how long PROGRAM may take to end after SIGTERM before SIGKILL; by default %g\n"
	       "  --watchdog SECONDS       kill PROGRAM if it is ready and says no WATCHDOG=1 for so long; by default 0: never\n"
	       "  --restart-delay SECONDS  the longest delay before PROGRAM is started again; by default %g\n"
	       "  --runtime-dir DIR        where to make the folder of the notification socket; by default the first possible of XDG_RUNTIME_DIR, /run, /tmp\n"
	       "  --help                   print this\n"
	       "  --version                print the version\n",
	       STORE_FDS_MAX, START_TIMEOUT_MS / 1000.0, STOP_TIMEOUT_MS / 1000.0,
	       RESTART_DELAY_MAX_MS / 1000.0);
	return 1;
}

static int usage(const char *what, const char *flag)
{
	log_error("%s: %s (gpuwm-keeper --help tells the flags)", flag, what);
	return -EINVAL;
}

static int parse_count(const char *text, size_t *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end || n > STORE_MAX_MAX)
		return usage("a number from 0 to 65536 is wanted", "--store-max");
	*ret = n;
	return 0;
}

static int parse_seconds(const char *flag, const char *text, uint64_t *ret_ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (!text[0] || text[strspn(text, "0123456789.")] || *end || seconds > SECONDS_MAX)
		return usage("seconds from 0 to 86400 are wanted, as 8 or 0.5", flag);
	*ret_ms = (uint64_t)(seconds * 1000 + 0.5);
	return 0;
}

static int apply(struct options *options, int flag, const char *value)
{
	switch (flag) {
	case FLAG_STORE:
		return parse_count(value, &options->store_max);
	case FLAG_START:
		return parse_seconds("--start-timeout", value, &options->start_ms);
	case FLAG_STOP:
		return parse_seconds("--stop-timeout", value, &options->stop_ms);
	case FLAG_WATCHDOG:
		return parse_seconds("--watchdog", value, &options->watchdog_ms);
	case FLAG_RESTART:
		return parse_seconds("--restart-delay", value, &options->restart_ms);
	default:
		options->runtime_dir = value;
		return 0;
	}
}

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct options options = {.store_max = STORE_FDS_MAX,
				  .start_ms = START_TIMEOUT_MS,
				  .stop_ms = STOP_TIMEOUT_MS,
				  .watchdog_ms = WATCHDOG_MS,
				  .restart_ms = RESTART_DELAY_MAX_MS};
	int flag, r = 0;

	opterr = 0;
	optind = 0; /* getopt begins again */
	while (r == 0 && (flag = getopt_long(argc, argv, "+:", flags, NULL)) != -1) {
		if (flag == FLAG_HELP)
			return print_help();
		if (flag == FLAG_VERSION)
			return printf("gpuwm-keeper " GPUWM_VERSION "\n") > 0;
		if (flag == ':')
			return usage("its value is missing", argv[optind - 1]);
		if (flag == '?')
			return usage("there is no such flag, or it takes no value", argv[optind - 1]);
		r = apply(&options, flag, optarg);
	}
	if (r == 0 && optind == argc)
		r = usage("the program is missing", "gpuwm-keeper");
	if (r < 0)
		return r;
	options.command = argv + optind;
	*ret = options;
	return 0;
}
