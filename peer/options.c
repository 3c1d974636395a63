#include "options.h"

#include "ask.h"
#include "../service/flags.h"

#include <stdio.h>

#define PROGRAM "gpuwm-peer"

enum { FLAG_CONFIG = 256, FLAG_SOCKET, FLAG_LIST, FLAG_TIMEOUT, FLAG_CHECK, FLAG_HELP, FLAG_VERSION };

static const struct option flags[] = {
	{"config", required_argument, NULL, FLAG_CONFIG}, {"socket", required_argument, NULL, FLAG_SOCKET},
	{"list", no_argument, NULL, FLAG_LIST},           {"timeout", required_argument, NULL, FLAG_TIMEOUT},
	{"check-config", no_argument, NULL, FLAG_CHECK},  {"help", no_argument, NULL, FLAG_HELP},
	{"version", no_argument, NULL, FLAG_VERSION},     {0},
};

static int options_print_help(void)
{
	printf("usage: gpuwm-peer [FLAG]...\n\n"
	       "Serves the versions that gpuwmd holds to other nodes, which take them with gpuwmctl load peer://HOST/MODEL@TAG.\n"
	       "Both sides prove who they are, by certificates or a secret: [peers] of gpuwmd.conf names the files.\n\n"
	       "Flags:\n"
	       "  --config FILE          the configuration; by default %s\n"
	       "  --socket PATH          gpuwmd's socket; by default $GPUWM_SOCKET, else where one listens:\n"
	       "                         this user's, else the system's, /run/gpuwm/gpuwm.sock\n"
	       "  --list                 ask the other nodes what they have, print it as JSON, and end\n"
	       "  --timeout SECONDS      with --list: how long to wait for a node; by default %d\n"
	       "  --check-config         read the configuration and the keys, print the first error or what there is, and end\n"
	       "  --help                 print this\n"
	       "  --version              print the version\n",
	       CONFIG_DEFAULT, ASK_TIMEOUT_MS / 1000);
	return 1;
}

static int options_take(struct options *options, int flag)
{
	if (flag == FLAG_CONFIG)
		options->config = optarg;
	else if (flag == FLAG_SOCKET)
		options->socket = optarg;
	else if (flag == FLAG_LIST)
		options->list = true;
	else if (flag == FLAG_CHECK)
		options->check = true;
	else
		return flag_seconds(PROGRAM, "--timeout", optarg, 1, &options->timeout_ms);
	return 0;
}

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct options options = {.config = CONFIG_DEFAULT, .timeout_ms = ASK_TIMEOUT_MS};
	int flag, r;

	flags_begin();
	while ((flag = flags_next(PROGRAM, argc, argv, flags)) != -1) {
		if (flag == FLAG_HELP)
			return options_print_help();
		if (flag == FLAG_VERSION)
			return printf("gpuwm-peer " GPUWM_VERSION "\n") > 0;
		r = flag < 0 ? flag : options_take(&options, flag);
		if (r < 0)
			return r;
	}
	if (optind != argc)
		return flag_wrong(PROGRAM, argv[optind], "there are flags only");
	*ret = options;
	return 0;
}
