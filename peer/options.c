#include "options.h"

#include "ask.h"
#include "../service/log.h"
#include "../service/option.h"

static struct options given;

static const struct option_row rows[] = {
	{"config", "the configuration; by default " CONFIG_DEFAULT, "FILE", take_text, .into = &given.config},
	{"socket",
	 "gpuwmd's socket; by default $GPUWM_SOCKET, else where one listens: this user's, else the system's, "
	 "/run/gpuwm/gpuwm.sock",
	 "PATH", take_text, .into = &given.socket},
	{"list", "ask the other nodes what they have, print it as JSON, and end", .into = &given.list},
	{"timeout", "with --list: how long to wait for a node", "SECONDS", take_seconds,
	 .into = &given.timeout_ms, .least = 1},
	{"check-config", "read the configuration and the keys, print the first error or what there is, and end",
	 .into = &given.check},
	{0},
};

static const struct command_line line = {
	.program = "gpuwm-peer",
	.usage = "[OPTION]...",
	.about =
		"Serves the versions that gpuwmd holds to other nodes, which take them with gpuwmctl load "
		"peer://HOST/MODEL@TAG. Both sides prove who they are, by certificates or a secret: [peers] of gpuwmd.conf "
		"names the files.",
	.rows = rows,
	.version = GPUWM_VERSION,
};

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct error error;
	int r;

	given = (struct options){.config = CONFIG_DEFAULT, .timeout_ms = ASK_TIMEOUT_MS};
	r = command_line_read(&line, argc, argv, NULL, &error);
	if (r < 0)
		log_error("%s: %s", error.message, error.detail);
	if (r == 0)
		*ret = given;
	return r;
}
