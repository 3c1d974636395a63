#include "options.h"

#include "../service/log.h"
#include "../service/option.h"

/* LISTEN_FDNAMES has room for this many names of one letter. */
#define STORE_MAX_MAX 65536

static struct options given;

static const struct option_row rows[] = {
	{"store-max", "how many descriptors PROGRAM may store", "N", take_count, .into = &given.store_max,
	 .most = STORE_MAX_MAX},
	{"start-timeout", "kill PROGRAM if it is not ready so long after its start; 0: never", "SECONDS",
	 take_seconds, .into = &given.start_ms},
	{"stop-timeout", "how long PROGRAM may take to end after SIGTERM before SIGKILL", "SECONDS",
	 take_seconds, .into = &given.stop_ms},
	{"watchdog", "kill PROGRAM if it is ready and says no WATCHDOG=1 for so long; 0: never", "SECONDS",
	 take_seconds, .into = &given.watchdog_ms},
	{"restart-delay", "the longest delay before PROGRAM is started again", "SECONDS", take_seconds,
	 .into = &given.restart_ms},
	{"runtime-dir",
	 "where to make the folder of the notification socket; by default the first possible of "
	 "XDG_RUNTIME_DIR, /run, /tmp",
	 "DIR", take_text, .into = &given.runtime_dir},
	{"take-over",
	 "take everything over from the keeper that listens at SOCKET, if there is one; then listen there",
	 "SOCKET", take_text, .into = &given.take_over},
	{"generation", "hand over only to a keeper with N or more", "N", take_count, .into = &given.generation,
	 .most = UINT64_MAX},
	{"ready-file", "make FILE while PROGRAM is ready", "FILE", take_text, .into = &given.ready_file},
	{0},
};

static const struct command_line line = {
	.program = "gpuwm-keeper",
	.usage = "[OPTION]... -- PROGRAM [ARGUMENT]...",
	.about =
		"Runs PROGRAM (gpuwmd) where there is no systemd: keeps its descriptors, starts it again when it ends, "
		"passes signals on, reaps orphans. SIGUSR1 upgrades: it ends PROGRAM and starts it anew.",
	.rows = rows,
	.word = "PROGRAM",
	.version = GPUWM_VERSION,
};

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct error error;
	int r;

	given = (struct options){.store_max = STORE_FDS_MAX,
				 .start_ms = START_TIMEOUT_MS,
				 .stop_ms = STOP_TIMEOUT_MS,
				 .watchdog_ms = WATCHDOG_MS,
				 .restart_ms = RESTART_DELAY_MAX_MS};
	r = command_line_read(&line, argc, argv, &given.command, &error);
	if (r < 0)
		log_error("%s: %s", error.message, error.detail);
	if (r == 0)
		*ret = given;
	return r;
}
