#include "restart/inherited.h"
#include "config/roots.h"
#include "server.h"
#include "start_lines.h"
#include "../service/abort_line.h"
#include "../service/privacy.h"
#include "../service/streams.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <string.h>
#include <unistd.h>

/* A user whose processes keep the processors busy is not to keep gpuwmd from the others. Root may raise itself, and
 * systemd's unit does it for gpuwmd (Nice=); elsewhere gpuwmd takes its turns as everybody does. */
#define NICE (-5)

enum { EXIT_RAN = 0, EXIT_COULD_NOT_START = 1, EXIT_USAGE = 2 };

static int complain(const struct error *error, int code)
{
	log_error("%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
	return code;
}

/* What a start and a reload check too. */
static int check(const struct config *config)
{
	struct error error;

	if (config_check_files(config, &error) < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	roots_look_now(config);
	printf("%s: no errors\n", config->file ? config->file : "the flags");
	return EXIT_RAN;
}

static int run(struct config *config)
{
	struct inherited left;
	struct server *server;
	struct error error;
	int r;

	log_line_date();
	start_lines_begin();
	r = inherited_read(&left, &error);

	if (r == 0)
		r = config_check_files(config, &error);
	if (r == 0)
		r = server_new(config, &server, &error);
	if (r < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	r = server_run(server, &left, &error);
	r = r < 0 ? complain(&error, EXIT_COULD_NOT_START) : EXIT_RAN;
	if (server_free(server))
		_exit(r);
	return r;
}

int main(int argc, char **argv)
{
	struct config config;
	struct error error;
	int private = privacy_begin(), r;

	if (streams_open() < 0)
		return EXIT_COULD_NOT_START;
	abort_line_begin("gpuwmd");
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a state that can't be written is an error, not a core */
	signal(SIGHUP, SIG_IGN); /* until a reload is possible */
	log_init(LOG_LEVEL_INFO);
	if (getenv("NOTIFY_SOCKET")) /* a person who reads errors of flags on a terminal needs no dates */
		log_line_date();
	if (private < 0) {
		error_set(&error, private, NULL, "gpuwmd can't keep other processes from tracing it: %s",
			  strerror(-private));
		return complain(&error, EXIT_COULD_NOT_START);
	}
	if (getpriority(PRIO_PROCESS, 0) == 0)
		setpriority(PRIO_PROCESS, 0, NICE);
	config_init(&config);
	r = config_arguments(&config, argc, argv, &error);
	if (r < 0) {
		complain(&error, EXIT_USAGE);
	} else if (r == 0) {
		log_init(config.log_level);
		r = config.check_only ? check(&config) : run(&config);
		config_clear(&config);
		return r;
	}
	config_clear(&config);
	return r < 0 ? EXIT_USAGE : EXIT_RAN;
}
