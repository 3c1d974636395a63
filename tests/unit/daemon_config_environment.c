/* GPUWM_SOCKET, between the file and the flags. */
#include "daemon/config/config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct config config;
static struct error error;

static void setup(void)
{
	config_init(&config);
}

static void teardown(void)
{
	config_clear(&config);
}

TestSuite(config_environment, .init = setup, .fini = teardown);

#define arguments(...) run_arguments((char *[]){"gpuwmd", __VA_ARGS__ __VA_OPT__(, ) NULL})
static int run_arguments(char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return config_arguments(&config, argc, argv, &error);
}

Test(config_environment, gpuwm_socket_is_where_gpuwmd_serves)
{
	setenv("GPUWM_SOCKET", "/tmp/here/a.sock", 1);
	cr_assert_eq(arguments(), 0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/tmp/here/a.sock");
	cr_expect_str_eq(config.admin_socket, "/tmp/here/admin.sock");
}

Test(config_environment, gpuwm_socket_wins_over_the_file)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/gpuwm-environment-%d.conf", (int)getpid());
	file = fopen(path, "we");
	cr_assert(file && fputs("[socket]\npath = /run/f.sock\nadmin_path = /run/g.sock\n", file) >= 0 &&
		  fclose(file) == 0);
	setenv("GPUWM_SOCKET", "/tmp/here/a.sock", 1);
	cr_assert_eq(arguments("--config", path), 0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/tmp/here/a.sock");
	cr_expect_str_eq(config.admin_socket, "/tmp/here/admin.sock", "clients look for it there");
	unsetenv("GPUWM_SOCKET");
	cr_assert_eq(arguments("--config", path), 0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/run/f.sock");
	cr_expect_str_eq(config.admin_socket, "/run/g.sock");
	unlink(path);
}

Test(config_environment, flags_win_over_gpuwm_socket)
{
	setenv("GPUWM_SOCKET", "/tmp/here/a.sock", 1);
	cr_assert_eq(arguments("--socket", "/tmp/there/b.sock"), 0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/tmp/there/b.sock");
	cr_expect_str_eq(config.admin_socket, "/tmp/there/admin.sock");
}

Test(config_environment, an_empty_gpuwm_socket_is_none)
{
	char before[PATH_BYTES_MAX + 1];

	strcpy(before, config.socket);
	setenv("GPUWM_SOCKET", "", 1);
	cr_assert_eq(arguments(), 0, "%s", error.message);
	cr_expect_str_eq(config.socket, before);
}

Test(config_environment, a_relative_gpuwm_socket_counts_from_the_working_folder)
{
	cr_assert_eq(chdir("/usr"), 0);
	setenv("GPUWM_SOCKET", "a.sock", 1);
	cr_assert_eq(arguments(), 0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/usr/a.sock");
	cr_expect_str_eq(config.admin_socket, "/usr/admin.sock");
}

Test(config_environment, a_gpuwm_socket_that_can_be_none_is_an_error_that_names_it)
{
	char longest[200] = "/";

	setenv("GPUWM_SOCKET", "/tmp/here/", 1);
	cr_expect_eq(arguments(), -EINVAL);
	cr_expect(strstr(error.message, "GPUWM_SOCKET: ") && strstr(error.message, "names a folder"), "%s",
		  error.message);
	memset(longest + 1, 'x', sizeof(longest) - 2);
	setenv("GPUWM_SOCKET", longest, 1);
	cr_expect_eq(arguments(), -EINVAL);
	cr_expect(strstr(error.message, "GPUWM_SOCKET: "), "%s", error.message);
	setenv("GPUWM_SOCKET", "/tmp/here/admin.sock", 1);
	cr_expect_eq(arguments(), -EINVAL, "operators need one of their own");
}
