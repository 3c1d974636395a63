#include "options.h"

#include "../service/log.h"
#include "../service/option.h"

#include <errno.h>

static struct options given;

static const struct option_row rows[] = {
	{"listen", "where to listen; by default " ADDRESS_DEFAULT, "ADDRESS:PORT", take_text,
	 .into = &given.listen},
	{"token-file",
	 "who shows the token in FILE (HTTP's Authorization: Bearer) sees models, workers and jobs. Without it "
	 "everybody sees totals only",
	 "FILE", take_text, .into = &given.token_file},
	{"no-token", "everybody who reaches the address sees everything", .into = &given.no_token},
	{"socket",
	 "gpuwmd's socket; by default $GPUWM_SOCKET, else where one listens: this user's, else the system's, "
	 "/run/gpuwm/gpuwm.sock",
	 "PATH", take_text, .into = &given.socket},
	{0},
};

static const struct command_line line = {
	.program = "gpuwm-exporter",
	.usage = "[OPTION]...",
	.about =
		"Shows over HTTP what gpuwmd holds and does: / is a page for people, /metrics is for Prometheus. It "
		"changes nothing.",
	.rows = rows,
	.version = GPUWM_VERSION,
};

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct error error;
	int r;

	given = (struct options){.listen = ADDRESS_DEFAULT};
	r = command_line_read(&line, argc, argv, NULL, &error);
	if (r == 0 && address_parse(given.listen, &given.address) < 0)
		r = error_set(&error, -EINVAL, "write, for example, 127.0.0.1:9464 or [::1]:9464",
			      "--listen takes an address in digits and a port, not '%s'", given.listen);
	if (r == 0 && given.token_file && given.no_token)
		r = error_set(&error, -EINVAL, "give one of them",
			      "--token-file and --no-token contradict each other");
	if (r < 0)
		log_error("%s: %s", error.message, error.detail);
	if (r == 0)
		*ret = given;
	return r;
}
