#include "options.h"

#include "../proto/address.h"
#include "../service/option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* No time can be 0: what is checked or tried again would never rest. */
#define SECONDS_LEAST_MS 1

static struct options given;

/* ---- --backend ----------------------------------------------------------- */

#define ROUTE "write MODEL=BACKEND or MODEL@NAME=BACKEND"

/* A name of HAProxy's, which needs no quotes in a command. */
static bool is_backend(const char *name)
{
	return name[0] && strlen(name) <= BACKEND_BYTES_MAX &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")];
}

static int parse_route(const char *text, struct route *ret, struct error *error)
{
	const char *equals = strchr(text, '=');
	struct route route = {0};
	struct ref ref = {0};
	const char *why;
	int bytes = equals ? (int)(equals - text) : 0;

	if (!equals)
		return error_set(error, -EINVAL, ROUTE, "--backend: '%s' has no =BACKEND", text);
	if ((size_t)bytes >= sizeof(route.ref))
		return error_set(error, -EINVAL, ROUTE,
				 "--backend: the model's name has %d bytes; at most %zu are possible", bytes,
				 sizeof(route.ref) - 1);
	snprintf(route.ref, sizeof(route.ref), "%.*s", bytes, text);
	if (ref_parse(route.ref, &ref, &why) < 0)
		return error_set(error, -EINVAL, ROUTE, "--backend: the name '%s' %s", route.ref, why);
	if (ref.has_id)
		return error_set(error, -EINVAL, "give MODEL@NAME",
				 "--backend: '%s' is a version's id, which never names another version",
				 route.ref);
	if (!is_backend(equals + 1))
		return error_set(error, -EINVAL,
				 "a backend's name has 1 to 128 of letters, digits and '-', '_', '.', ':'",
				 "--backend: '%s' is no name of a backend", equals + 1);
	strcpy(route.model, ref.model);
	strcpy(route.name, ref.name);
	strcpy(route.backend, equals + 1);
	*ret = route;
	return 0;
}

/* Two routes to one backend would each remove the servers of the other. */
static int take_backend(const struct option_row *row, const char *text, void *data, struct error *error)
{
	struct route *route = &given.routes[given.route_count];
	int r;

	(void)data;
	if (given.route_count == ROUTES_MAX)
		return error_set(error, -EINVAL, row->help, "--%s was given more than %d times", row->name,
				 ROUTES_MAX);
	r = parse_route(text, route, error);
	for (size_t i = 0; r == 0 && i < given.route_count; i++) {
		if (strcmp(given.routes[i].backend, route->backend) == 0)
			r = error_set(error, -EINVAL, "give each model a backend of its own",
				      "--%s: two models have the backend %s", row->name, route->backend);
	}
	given.route_count += r == 0;
	return r;
}

/* ---- the others ---------------------------------------------------------- */

static int take_haproxy(const struct option_row *row, const char *text, void *data, struct error *error)
{
	if (text[0] != '/' && address_wrong(text))
		return error_set(error, -EINVAL, row->help,
				 "--%s takes an absolute path, HOST:PORT or [IPv6]:PORT, not '%s'", row->name,
				 text);
	return take_text(row, text, data, error);
}

static int take_path(const struct option_row *row, const char *text, void *data, struct error *error)
{
	if (text[0] != '/')
		return error_set(error, -EINVAL, row->help, "--%s takes an absolute path, not '%s'", row->name,
				 text);
	return take_text(row, text, data, error);
}

static const struct option_row rows[] = {
	{"backend", "which backend gets the workers of which version; may be given several times",
	 "MODEL[@NAME]=BACKEND", take_backend, .repeats = true},
	{"haproxy", "HAProxy's stats socket, of level admin: a path, HOST:PORT or [IPv6]:PORT", "SOCKET",
	 take_haproxy, .into = &given.haproxy},
	{"haproxy-state", "with --haproxy: write HAProxy's server-state-file after each change", "FILE",
	 take_path, .into = &given.haproxy_state},
	{"exec", "run COMMAND with sh after each change; all servers are JSON on its standard input", "COMMAND",
	 take_text, .into = &given.exec},
	{"exec-timeout", "how long a run of COMMAND may take before it is killed", "SECONDS", take_seconds,
	 .into = &given.exec_timeout_ms, .least = SECONDS_LEAST_MS},
	{"exec-retry", "the pause before the next run after one that failed", "SECONDS", take_seconds,
	 .into = &given.exec_retry_ms, .least = SECONDS_LEAST_MS},
	{"keep", "how long to keep servers of which gpuwmd does not tell after a restart", "SECONDS",
	 take_seconds, .into = &given.keep_ms, .least = SECONDS_LEAST_MS},
	{"check", "how often to compare HAProxy's servers with what they should be", "SECONDS", take_seconds,
	 .into = &given.check_ms, .least = SECONDS_LEAST_MS},
	{"socket", "gpuwmd's socket; by default the usual one of gpuwmctl(1)", "PATH", take_text,
	 .into = &given.socket},
	{0},
};

static const struct command_line line = {
	.program = "gpuwm-follow",
	.usage = "--backend MODEL[@NAME]=BACKEND... [OPTION]...",
	.about =
		"Sends a load balancer's requests to the workers that serve the version which MODEL@NAME names now "
		"(NAME: an alias or a tag; without it, current), and has the others drain.",
	.rows = rows,
	.required = "backend",
	.version = GPUWM_VERSION,
};

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct error error;
	int r;

	given = (struct options){.keep_ms = KEEP_MS,
				 .check_ms = CHECK_MS,
				 .exec_timeout_ms = EXEC_TIMEOUT_MS,
				 .exec_retry_ms = EXEC_RETRY_MS,
				 .routes = calloc(ROUTES_MAX, sizeof(struct route))};
	if (!given.routes)
		r = error_set(&error, -ENOMEM, "free some", "gpuwm-follow is out of memory");
	else
		r = command_line_read(&line, argc, argv, NULL, &error);
	if (r == 0 && !given.haproxy && !given.exec)
		r = error_set(&error, -EINVAL, "gpuwm-follow --help tells what they do",
			      "gpuwm-follow needs --haproxy SOCKET or --exec COMMAND");
	if (r < 0)
		log_error("%s: %s", error.message, error.detail);
	if (r == 0)
		*ret = given;
	else
		free(given.routes);
	return r;
}
