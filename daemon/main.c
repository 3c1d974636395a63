#include "restart/inherited.h"
#include "config/roots.h"
#include "server.h"
#include "start_lines.h"
#include "../proto/socket_place.h"
#include "../service/abort_line.h"
#include "../service/privacy.h"
#include "../service/streams.h"

#include <errno.h>
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

/* Whether the path is wrong for whoever runs gpuwmd. The other errors depend on the user, who may be another one than now, or
 * stop no gpuwmd. */
static bool is_of_path(int code)
{
	return code == -ENAMETOOLONG || code == -ENOENT || code == -ENOTDIR || code == -EEXIST;
}

/* What a start and a reload check too. */
static int check(const struct config *config)
{
	const char *const sockets[] = {config->socket, config->admin_socket};
	struct error error;

	if (config_check_machine(config, &error) < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
		int r = socket_place_check(sockets[i], geteuid(), &error);

		if (is_of_path(r))
			return complain(&error, EXIT_COULD_NOT_START);
		if (r < 0)
			log_warning("%s: %s", error.message, error.detail);
	}
	roots_check_now(config);
	printf("%s: no errors\n", config->file ? config->file : "the flags");
	return EXIT_RAN;
}

static void begin_log(void)
{
	log_line_date();
	start_lines_begin();
}

static int run(struct config *config, struct inherited *left)
{
	struct server *server;
	struct error error;
	int r = server_new(config, &server, &error);

	if (r < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	r = server_run(server, left, &error);
	r = r < 0 ? complain(&error, EXIT_COULD_NOT_START) : EXIT_RAN;
	if (server_free(server))
		_exit(r);
	return r;
}

/* Starts this program again in this process, with the descriptors that were passed. Returns only if that fails: the service
 * manager then starts it, and has them all. */
static int begin_anew(const struct inherited *left, char **argv)
{
	struct error error;
	int r = inherited_pass_on(left);

	if (r == 0) {
		signal(SIGHUP, SIG_IGN); /* it would end the new program before that can ignore it */
		execv("/proc/self/exe", argv);
		r = -errno;
	}
	error_set(&error, r, "the service manager starts it again", "gpuwmd could not begin anew: %s",
		  strerror(-r));
	return complain(&error, EXIT_COULD_NOT_START);
}

/* Serves without the configuration, which can't be used, so that all that was left can be reached once it is mended. */
static int run_locked(struct config *config, const struct inherited *left, struct error *why)
{
	struct server *server;
	struct error error;
	bool again;
	int r;

	config_keep_sockets(config);
	r = server_new(config, &server, &error);
	if (r < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	r = server_run_locked(server, left, why, &error);
	r = r < 0 ? complain(&error, EXIT_COULD_NOT_START) : EXIT_RAN;
	again = r == EXIT_RAN && server->begins_anew;
	server = server_free(server);
	if (again)
		r = begin_anew(left, config->argv);
	if (server)
		_exit(r);
	return r;
}

/* Whether the machine failed, and not what is written in the configuration: a next start may read it. */
static bool may_pass(int code)
{
	return code == -EMFILE || code == -ENFILE || code == -ENOMEM || code == -EINTR || code == -EAGAIN;
}

/* usable: 0, or why the configuration can't be used. */
static int start(struct config *config, int usable, struct error *why)
{
	int code = usable < 0 ? EXIT_USAGE : EXIT_COULD_NOT_START;
	struct inherited left;
	struct error error;

	if (usable == 0)
		begin_log();
	if (inherited_read(&left, &error) < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	if (usable == 0)
		usable = config_check_machine(config, why);
	if (usable == 0)
		return run(config, &left);
	if (inherited_has_versions(&left) && !may_pass(usable)) {
		if (code == EXIT_USAGE)
			begin_log();
		code = run_locked(config, &left, why);
	} else {
		complain(why, code);
	}
	inherited_clear(&left);
	return code;
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
	if (r > 0) {
		r = EXIT_RAN;
	} else {
		log_init(config.log_level);
		r = r == 0 && config.check_only ? check(&config) : start(&config, r, &error);
	}
	config_clear(&config);
	return r;
}
