#include "follow/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct options options;

static void end(void)
{
	free(options.routes);
}

TestSuite(follow_options, .init = cr_redirect_stderr, .fini = end);

/* Words end with NULL. */
static int parse(char *const *words)
{
	int argc = 0;

	while (words[argc])
		argc++;
	free(options.routes);
	options = (struct options){0};
	return options_parse(&options, argc, words);
}
#define PARSE(...) parse((char *[]){"gpuwm-follow", __VA_ARGS__, NULL})

Test(follow_options, routes_and_defaults)
{
	cr_assert_eq(PARSE("--backend", "llama=a", "--backend", "org/x@prod=b", "--haproxy", "/run/h.sock"), 0);
	cr_assert_eq(options.route_count, 2);
	cr_expect_str_eq(options.routes[0].model, "llama");
	cr_expect_str_eq(options.routes[0].name, "current");
	cr_expect_str_eq(options.routes[0].ref, "llama");
	cr_expect_str_eq(options.routes[1].model, "org/x");
	cr_expect_str_eq(options.routes[1].name, "prod");
	cr_expect_str_eq(options.routes[1].backend, "b");
	cr_expect_eq(options.keep_ms, KEEP_MS);
	cr_expect_eq(options.check_ms, CHECK_MS);
	cr_expect_eq(options.exec_timeout_ms, EXEC_TIMEOUT_MS);
	cr_expect_eq(options.exec_retry_ms, EXEC_RETRY_MS);
	cr_expect_null(options.exec);
}

Test(follow_options, all_of_them)
{
	cr_assert_eq(PARSE("--backend=m=b", "--haproxy=127.0.0.1:9999", "--haproxy-state=/f", "--exec=cat",
			   "--exec-timeout=2", "--exec-retry=0.5", "--keep=7", "--check=0.001", "--socket=/s"),
		     0);
	cr_expect_str_eq(options.haproxy, "127.0.0.1:9999");
	cr_expect_str_eq(options.haproxy_state, "/f");
	cr_expect_str_eq(options.exec, "cat");
	cr_expect_str_eq(options.socket, "/s");
	cr_expect_eq(options.exec_timeout_ms, 2000);
	cr_expect_eq(options.exec_retry_ms, 500);
	cr_expect_eq(options.keep_ms, 7000);
	cr_expect_eq(options.check_ms, 1);
	/* The unit passes the state file in any case. */
	cr_expect_eq(PARSE("--haproxy-state=/f", "--backend=m=b", "--exec=cat"), 0);
}

Test(follow_options, what_is_wrong)
{
	static char *wrong[][8] = {
		{"gpuwm-follow", "--haproxy", "/s"}, /* no backend */
		{"gpuwm-follow", "--backend", "m=b"}, /* nobody to tell */
		{"gpuwm-follow", "--backend", "m=b", "--haproxy", "/s", "--haproxy-state", "f"},
		{"gpuwm-follow", "--backend", "m", "--exec", "x"},
		{"gpuwm-follow", "--backend", "=b", "--exec", "x"},
		{"gpuwm-follow", "--backend", "m@=b", "--exec", "x"},
		{"gpuwm-follow", "--backend", "m=", "--exec", "x"},
		{"gpuwm-follow", "--backend", "m=b;c", "--exec", "x"},
		{"gpuwm-follow", "--backend", "0123456789abcdef0123456789abcdef=b", "--exec", "x"},
		{"gpuwm-follow", "--backend", "m=b", "--backend", "n=b", "--exec", "x"},
		{"gpuwm-follow", "--backend", "m=b", "--haproxy", "s"},
		{"gpuwm-follow", "--backend", "m=b", "--exec", "x", "--keep", "0"},
		{"gpuwm-follow", "--backend", "m=b", "--exec", "x", "--check", "1s"},
		{"gpuwm-follow", "--backend", "m=b", "--exec", "x", "--exec-timeout", "86401"},
		{"gpuwm-follow", "--backend", "m=b", "--exec", "x", "--exec-retry", ""},
		{"gpuwm-follow", "--backend", "m=b", "--exec", "x", "more"},
		{"gpuwm-follow", "--backend", "m=b", "--exec"},
		{"gpuwm-follow", "--what"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_expect_eq(parse(wrong[i]), -EINVAL, "%zu: %s", i, wrong[i][2]);
}

Test(follow_options, longer_names_than_there_are_are_refused)
{
	char text[400];

	memset(text, 'm', sizeof(text));
	strcpy(text + 300, "=b");
	cr_expect_eq(PARSE("--backend", text, "--exec", "x"), -EINVAL);
	strcpy(text, "m=");
	memset(text + 2, 'b', 129);
	text[131] = '\0';
	cr_expect_eq(PARSE("--backend", text, "--exec", "x"), -EINVAL);
	text[130] = '\0';
	cr_expect_eq(PARSE("--backend", text, "--exec", "x"), 0);
}

Test(follow_options, more_backends_than_possible)
{
	char *words[2 * ROUTES_MAX + 6] = {"gpuwm-follow", "--exec", "x"}, texts[ROUTES_MAX + 1][16];

	for (int i = 0; i <= ROUTES_MAX; i++) {
		snprintf(texts[i], sizeof(texts[i]), "m=b%d", i);
		words[3 + 2 * i] = "--backend";
		words[4 + 2 * i] = texts[i];
	}
	cr_expect_eq(parse(words), -EINVAL);
	words[3 + 2 * ROUTES_MAX] = NULL;
	cr_expect_eq(parse(words), 0);
	cr_expect_eq(options.route_count, ROUTES_MAX);
}

Test(follow_options, help_and_version)
{
	cr_redirect_stdout();
	cr_expect_eq(PARSE("--help"), 1);
	cr_expect_eq(PARSE("--version"), 1);
}
