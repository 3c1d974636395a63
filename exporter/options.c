#include "options.h"

#include "../service/flags.h"

#include <stdio.h>

#define PROGRAM "gpuwm-exporter"

enum { FLAG_LISTEN = 256, FLAG_SOCKET, FLAG_TOKEN_FILE, FLAG_NO_TOKEN, FLAG_HELP, FLAG_VERSION };

static const struct option flags[] = {
	{"listen", required_argument, NULL, FLAG_LISTEN},
	{"socket", required_argument, NULL, FLAG_SOCKET},
	{"token-file", required_argument, NULL, FLAG_TOKEN_FILE},
	{"no-token", no_argument, NULL, FLAG_NO_TOKEN},
	{"help", no_argument, NULL, FLAG_HELP},
	{"version", no_argument, NULL, FLAG_VERSION},
	{0},
};

static int options_print_help(void)
{
	printf("usage: gpuwm-exporter [FLAG]...\n\n"
	       "Shows over HTTP what gpuwmd holds and does: / is a page for people, /metrics is for Prometheus.\n"
	       "It changes nothing.\n\n"
	       "Flags:\n"
	       "  --listen ADDRESS:PORT  where to listen; by default %s\n"
	       "  --token-file FILE      who shows the token in FILE (HTTP's Authorization: Bearer) sees models, workers and jobs.\n"
	       "                         Without it everybody sees totals only\n"
	       "  --no-token             everybody who reaches the address sees everything\n"
	       "  --socket PATH          gpuwmd's socket; by default $GPUWM_SOCKET, else where one listens:\n"
	       "                         this user's, else the system's, /run/gpuwm/gpuwm.sock\n"
	       "  --help                 print this\n"
	       "  --version              print the version\n",
	       ADDRESS_DEFAULT);
	return 1;
}

static int usage(const char *what, const char *flag)
{
	return flag_wrong(PROGRAM, flag, what);
}

int options_parse(struct options *ret, int argc, char *const *argv)
{
	struct options options = {.listen = ADDRESS_DEFAULT};
	int flag;

	flags_begin();
	while ((flag = flags_next(PROGRAM, argc, argv, flags)) != -1) {
		if (flag == FLAG_HELP)
			return options_print_help();
		if (flag == FLAG_VERSION)
			return printf("gpuwm-exporter " GPUWM_VERSION "\n") > 0;
		if (flag < 0)
			return flag;
		if (flag == FLAG_LISTEN)
			options.listen = optarg;
		else if (flag == FLAG_SOCKET)
			options.socket = optarg;
		else if (flag == FLAG_TOKEN_FILE)
			options.token_file = optarg;
		else
			options.no_token = true;
	}
	if (optind != argc)
		return usage("there are flags only", argv[optind]);
	if (address_parse(options.listen, &options.address) < 0)
		return usage("an address in digits and a port are wanted, as 127.0.0.1:9464 or [::1]:9464",
			     options.listen);
	if (options.token_file && options.no_token)
		return usage("one of them is wanted", "--token-file, --no-token");
	*ret = options;
	return 0;
}
