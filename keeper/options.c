#include "options.h"
#include "../service/flags.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "gpuwm-keeper"
/* LISTEN_FDNAMES has room for this many names of one letter. */
#define STORE_MAX_MAX 65536

enum {
	FLAG_STORE = 256,
	FLAG_START,
	FLAG_STOP,
	FLAG_WATCHDOG,
	FLAG_RESTART,
	FLAG_FOLDER,
	FLAG_TAKE_OVER,
	FLAG_GENERATION,
	FLAG_READY,
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
	{"take-over", required_argument, NULL, FLAG_TAKE_OVER},
	{"generation", required_argument, NULL, FLAG_GENERATION},
	{"ready-file", required_argument, NULL, FLAG_READY},
	{"help", no_argument, NULL, FLAG_HELP},
	{"version", no_argument, NULL, FLAG_VERSION},
	{0},
};

static int options_print_help(void)
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
	       "  --take-over SOCKET       take everything over from the keeper that listens at SOCKET, if there is one; then listen there\n"
	       "  --generation N           hand over only to a keeper with N or more; by default 0\n"
	       "  --ready-file FILE        make FILE while PROGRAM is ready\n"
	       "  --help                   print this\n"
	       "  --version                print the version\n",
	       STORE_FDS_MAX, START_TIMEOUT_MS / 1000.0, STOP_TIMEOUT_MS / 1000.0,
	       RESTART_DELAY_MAX_MS / 1000.0);
	return 1;
}

static int usage(const char *what, const char *flag)
{
	return flag_wrong(PROGRAM, flag, what);
}

static int apply(struct options *options, int flag, const char *value)
{
	bool is_number = value[0] >= '0' && value[0] <= '9';
	char *end;

	switch (flag) {
	case FLAG_STORE:
		options->store_max = strtoul(value, &end, 10);
		if (!is_number || *end || options->store_max > STORE_MAX_MAX)
			return usage("a number from 0 to 65536 is wanted", "--store-max");
		return 0;
	case FLAG_START:
		return flag_seconds(PROGRAM, "--start-timeout", value, 0, &options->start_ms);
	case FLAG_STOP:
		return flag_seconds(PROGRAM, "--stop-timeout", value, 0, &options->stop_ms);
	case FLAG_WATCHDOG:
		return flag_seconds(PROGRAM, "--watchdog", value, 0, &options->watchdog_ms);
	case FLAG_RESTART:
		return flag_seconds(PROGRAM, "--restart-delay", value, 0, &options->restart_ms);
	case FLAG_GENERATION:
		errno = 0;
		options->generation = strtoull(value, &end, 10);
		if (!is_number || *end || errno)
			return usage("a number of at least 0 is wanted", "--generation");
		return 0;
	case FLAG_FOLDER:
		options->runtime_dir = value;
		return 0;
	case FLAG_TAKE_OVER:
		options->take_over = value;
		return 0;
	default:
		options->ready_file = value;
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

	flags_begin();
	while (r == 0 && (flag = flags_next(PROGRAM, argc, argv, flags)) != -1) {
		if (flag == FLAG_HELP)
			return options_print_help();
		if (flag == FLAG_VERSION)
			return printf("gpuwm-keeper " GPUWM_VERSION "\n") > 0;
		if (flag < 0)
			return flag;
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
