#include "options.h"
#include "../proto/address.h"
#include "../service/flags.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "gpuwm-follow"
/* No time can be 0: what is checked or tried again would never rest. */
#define SECONDS_LEAST_MS 1

enum {
	FLAG_SOCKET = 256,
	FLAG_BACKEND,
	FLAG_HAPROXY,
	FLAG_STATE,
	FLAG_EXEC,
	FLAG_EXEC_TIMEOUT,
	FLAG_EXEC_RETRY,
	FLAG_KEEP,
	FLAG_CHECK,
	FLAG_HELP,
	FLAG_VERSION
};

static const struct option flags[] = {
	{"socket", required_argument, NULL, FLAG_SOCKET},
	{"backend", required_argument, NULL, FLAG_BACKEND},
	{"haproxy", required_argument, NULL, FLAG_HAPROXY},
	{"haproxy-state", required_argument, NULL, FLAG_STATE},
	{"exec", required_argument, NULL, FLAG_EXEC},
	{"exec-timeout", required_argument, NULL, FLAG_EXEC_TIMEOUT},
	{"exec-retry", required_argument, NULL, FLAG_EXEC_RETRY},
	{"keep", required_argument, NULL, FLAG_KEEP},
	{"check", required_argument, NULL, FLAG_CHECK},
	{"help", no_argument, NULL, FLAG_HELP},
	{"version", no_argument, NULL, FLAG_VERSION},
	{0},
};

static int options_print_help(void)
{
	printf("usage: gpuwm-follow --backend MODEL[@NAME]=BACKEND... [FLAG]...\n\n"
	       "Sends a load balancer's requests to the workers that serve the version which MODEL@NAME names now\n"
	       "(NAME: an alias or a tag; without it, current), and has the others drain.\n\n"
	       "Flags:\n"
	       "  --backend MODEL[@NAME]=BACKEND  which backend gets the workers of which version; may be given several times\n"
	       "  --haproxy SOCKET         HAProxy's stats socket, of level admin: a path, HOST:PORT or [IPv6]:PORT\n"
	       "  --haproxy-state FILE     with --haproxy: write HAProxy's server-state-file after each change\n"
	       "  --exec COMMAND           run COMMAND with sh after each change; all servers are JSON on its standard input\n"
	       "  --exec-timeout SECONDS   how long a run of COMMAND may take before it is killed; by default %g\n"
	       "  --exec-retry SECONDS     the pause before the next run after one that failed; by default %g\n"
	       "  --keep SECONDS           how long to keep servers of which gpuwmd does not tell after a restart; by default %g\n"
	       "  --check SECONDS          how often to compare HAProxy's servers with what they should be; by default %g\n"
	       "  --socket PATH            gpuwmd's socket; by default the usual one of gpuwmctl(1)\n"
	       "  --help                   print this\n"
	       "  --version                print the version\n",
	       EXEC_TIMEOUT_MS / 1000.0, EXEC_RETRY_MS / 1000.0, KEEP_MS / 1000.0, CHECK_MS / 1000.0);
	return 1;
}

static int usage(const char *what, const char *flag)
{
	return flag_wrong(PROGRAM, flag, what);
}

/* A name of HAProxy's, which needs no quotes in a command. */
static bool is_backend(const char *name)
{
	return name[0] && strlen(name) <= BACKEND_BYTES_MAX &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")];
}

static int parse_route(const char *text, struct route *ret)
{
	const char *equals = strchr(text, '=');
	struct route route = {0};
	const char *why = "it has no =BACKEND";
	struct ref ref = {0};
	int bytes = equals ? (int)(equals - text) : 0;

	if (!equals || (size_t)bytes >= sizeof(route.ref))
		return usage(equals ? "the model's name is too long" : why, "--backend");
	snprintf(route.ref, sizeof(route.ref), "%.*s", bytes, text);
	if (ref_parse(route.ref, &ref, &why) < 0) {
		log_error("--backend: the name \"%s\" %s", route.ref, why);
		return -EINVAL;
	}
	if (ref.has_id)
		return usage("a version's id never names another version: give MODEL@NAME", "--backend");
	if (!is_backend(equals + 1))
		return usage("a backend's name has 1 to 128 of letters, digits and -_.:", "--backend");
	strcpy(route.model, ref.model);
	strcpy(route.name, ref.name);
	strcpy(route.backend, equals + 1);
	*ret = route;
	return 0;
}

/* Two routes to one backend would each remove the servers of the other. */
static int add_route(struct options *options, const char *text)
{
	struct route *route = &options->routes[options->route_count];
	int r = options->route_count < ROUTES_MAX ? parse_route(text, route)
						  : usage("at most 64 backends are possible", "--backend");

	for (size_t i = 0; r == 0 && i < options->route_count; i++) {
		if (strcmp(options->routes[i].backend, route->backend) == 0)
			r = usage("two models have the same backend", "--backend");
	}
	options->route_count += r == 0;
	return r;
}

static int apply(struct options *options, int flag, const char *value)
{
	switch (flag) {
	case FLAG_BACKEND:
		return add_route(options, value);
	case FLAG_HAPROXY:
		if (value[0] != '/' && address_wrong(value))
			return usage("a path, HOST:PORT or [IPv6]:PORT is wanted", "--haproxy");
		options->haproxy = value;
		return 0;
	case FLAG_STATE:
		if (value[0] != '/')
			return usage("an absolute path is wanted", "--haproxy-state");
		options->haproxy_state = value;
		return 0;
	case FLAG_EXEC_TIMEOUT:
		return flag_seconds(PROGRAM, "--exec-timeout", value, SECONDS_LEAST_MS,
				    &options->exec_timeout_ms);
	case FLAG_EXEC_RETRY:
		return flag_seconds(PROGRAM, "--exec-retry", value, SECONDS_LEAST_MS, &options->exec_retry_ms);
	case FLAG_KEEP:
		return flag_seconds(PROGRAM, "--keep", value, SECONDS_LEAST_MS, &options->keep_ms);
	case FLAG_CHECK:
		return flag_seconds(PROGRAM, "--check", value, SECONDS_LEAST_MS, &options->check_ms);
	case FLAG_EXEC:
		options->exec = value;
		return 0;
	default:
		options->socket = value;
		return 0;
	}
}

static int parse_all(struct options *options, int argc, char *const *argv)
{
	int flag, r = 0;

	flags_begin();
	while (r == 0 && (flag = flags_next(PROGRAM, argc, argv, flags)) != -1) {
		if (flag == FLAG_HELP)
			return options_print_help();
		if (flag == FLAG_VERSION)
			return printf("gpuwm-follow " GPUWM_VERSION "\n") > 0;
		if (flag < 0)
			return flag;
		r = apply(options, flag, optarg);
	}
	if (r == 0 && optind < argc)
		r = usage("only flags are taken", argv[optind]);
	if (r < 0)
		return r;
	if (options->route_count == 0)
		return usage("it is missing", "--backend");
	if (!options->haproxy && !options->exec)
		return usage("one of them is wanted", "--haproxy, --exec");
	return 0;
}

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct options options = {.keep_ms = KEEP_MS,
				  .check_ms = CHECK_MS,
				  .exec_timeout_ms = EXEC_TIMEOUT_MS,
				  .exec_retry_ms = EXEC_RETRY_MS,
				  .routes = calloc(ROUTES_MAX, sizeof(struct route))};
	int r = options.routes ? parse_all(&options, argc, argv) : usage("out of memory", "gpuwm-follow");

	if (r == 0)
		*ret = options;
	else
		free(options.routes);
	return r;
}
