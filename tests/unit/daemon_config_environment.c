/* GPUWM_SOCKET, between the file and the flags. */
#include "tests/support/daemon/configuration.h"

TestSuite(config_environment, .init = config_open, .fini = config_close);

Test(config_environment, gpuwm_socket_is_where_gpuwmd_serves)
{
	setenv("GPUWM_SOCKET", "/tmp/here/a.sock", 1);
	cr_assert_eq(arguments(), 0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/tmp/here/a.sock");
	cr_expect_str_eq(config.admin_socket, "/tmp/here/admin.sock");
}

Test(config_environment, gpuwm_socket_wins_over_the_file)
{
	static const char text[] = "[socket]\npath = /run/f.sock\nadmin_path = /run/g.sock\n";

	config_file(text, strlen(text));
	setenv("GPUWM_SOCKET", "/tmp/here/a.sock", 1);
	cr_assert_eq(arguments("--config", config_path), 0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/tmp/here/a.sock");
	cr_expect_str_eq(config.admin_socket, "/tmp/here/admin.sock", "clients look for it there");
	unsetenv("GPUWM_SOCKET");
	cr_assert_eq(arguments("--config", config_path), 0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/run/f.sock");
	cr_expect_str_eq(config.admin_socket, "/run/g.sock");
}

Test(config_environment, flags_win_over_gpuwm_socket)
{
	setenv("GPUWM_SOCKET", "/tmp/here/a.sock", 1);
	cr_assert_eq(arguments("--socket", "/tmp/there/b.sock"), 0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/tmp/there/b.sock");
	cr_expect_str_eq(config.admin_socket, "/tmp/there/admin.sock");
}

Test(config_environment, an_empty_gpuwm_socket_is_none)
{
	char before[PATH_BYTES_MAX + 1];

	strcpy(before, config.socket);
	setenv("GPUWM_SOCKET", "", 1);
	cr_assert_eq(arguments(), 0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, before);
}

Test(config_environment, a_relative_gpuwm_socket_counts_from_the_working_folder)
{
	cr_assert_eq(chdir("/usr"), 0);
	setenv("GPUWM_SOCKET", "a.sock", 1);
	cr_assert_eq(arguments(), 0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/usr/a.sock");
	cr_expect_str_eq(config.admin_socket, "/usr/admin.sock");
}

Test(config_environment, a_gpuwm_socket_that_can_be_none_is_an_error_that_names_it)
{
	char longest[200] = "/";

	setenv("GPUWM_SOCKET", "/tmp/here/", 1);
	cr_expect_eq(arguments(), -EINVAL);
	cr_expect(strstr(config_error.message, "GPUWM_SOCKET: ") &&
			  strstr(config_error.message, "names a folder"),
		  "%s", config_error.message);
	memset(longest + 1, 'x', sizeof(longest) - 2);
	setenv("GPUWM_SOCKET", longest, 1);
	cr_expect_eq(arguments(), -EINVAL);
	cr_expect(strstr(config_error.message, "GPUWM_SOCKET: "), "%s", config_error.message);
	setenv("GPUWM_SOCKET", "/tmp/here/admin.sock", 1);
	cr_expect_eq(arguments(), -EINVAL, "operators need one of their own");
}
