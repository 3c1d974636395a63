#include "restart/descriptions.h"
#include "restart/inherited.h"
#include "restart/store.h"
#include "config/roots.h"
#include "server.h"
#include "../service/process.h"

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

/* What a start and a reload check too. */
static int main_check(const struct config *config)
{
	const struct config_judge judge = {.may_be_other = true};
	struct error error;

	if (config_check_machine(config, &judge, &error) < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	roots_check_now(config);
	if (config->tiers_folder[0] && descriptions_check(config->tiers_folder, &error) < 0)
		log_warning("%s: %s", error.message, error.detail);
	printf("%s: no errors\n", config->file ? config->file : "the flags");
	return EXIT_RAN;
}

static void begin_log(void)
{
	log_line_date();
	start_lines_begin();
}

/* Sets *ret_code to the exit status once gpuwmd has served, and returns 0. If gpuwmd could not open its sockets, returns why not, and
 * *left stays as it is. */
static int main_run(struct config *config, struct inherited *left, int *ret_code, struct error *why)
{
	const struct config_judge judge = sockets_judge(left);
	struct server *server;
	struct error error;
	uint64_t limit;
	int r = config_check_machine(config, &judge, why);

	if (r == 0)
		r = store_limit(&limit, why);
	if (r == 0)
		r = server_new(config, &server, why);
	if (r < 0)
		return r;
	r = server_listen(server, left, why);
	if (r < 0) {
		if (server_free(server))
			_exit(complain(why, EXIT_COULD_NOT_START));
		return r;
	}
	*ret_code = server_run(server, left, &error) < 0 ? complain(&error, EXIT_COULD_NOT_START) : EXIT_RAN;
	if (server_free(server))
		_exit(*ret_code);
	return 0;
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

/* Returns whether a next start may do better: the machine failed, or a gpuwmd before this one has not ended yet, and the
 * configuration is not to blame. */
static bool error_may_pass(int code)
{
	return code == -EMFILE || code == -ENFILE || code == -ENOMEM || code == -ENOBUFS || code == -EIO ||
	       code == -EINTR || code == -EAGAIN || code == -EBUSY;
}

/* r: 0, or why the configuration can't be read, which `why` says too. */
static int main_start(struct config *config, int r, struct error *why)
{
	const bool is_read = r == 0;
	struct inherited left;
	struct error error;
	int code;

	if (is_read)
		begin_log();
	if (inherited_read(&left, &error) < 0)
		return complain(&error, EXIT_COULD_NOT_START);
	if (is_read)
		r = main_run(config, &left, &code, why);
	if (r == 0)
		return code;
	if (inherited_has_versions(&left) && !error_may_pass(r)) {
		if (!is_read)
			begin_log();
		code = run_locked(config, &left, why);
	} else {
		code = complain(why, is_read ? EXIT_COULD_NOT_START : EXIT_USAGE);
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
	log_begin("gpuwmd");
	abort_line_begin();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* until a reload is possible */
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
		log_level_set(config.log_level);
		r = r == 0 && config.check_only ? main_check(&config) : main_start(&config, r, &error);
	}
	config_clear(&config);
	return r;
}
