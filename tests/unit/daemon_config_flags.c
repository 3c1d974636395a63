/* Flags of gpuwmd, and what they win over. */
#include "tests/support/daemon/configuration.h"
#include "daemon/base/probe.h"

#include <criterion/redirect.h>

TestSuite(config_flags, .init = config_open, .fini = config_close);

Test(config_flags, flags_win_over_the_file_in_any_order)
{
	cr_assert_eq(config_from("[socket]\npath = /file.sock\n[log]\nlevel = error\n[limits]\nsessions = 5\n"),
		     0);
	cr_assert_eq(arguments("--log-level", "debug", "--config", config_path, "--socket=/flag.sock"), 0, "%s",
		     config_error.message);
	cr_expect_str_eq(config.socket, "/flag.sock");
	cr_expect_eq(config.log_level, LOG_LEVEL_DEBUG);
	cr_expect_eq(config.sessions, 5);
}

Test(config_flags, every_flag_counts)
{
	cr_assert_eq(arguments("--socket", "/s", "--admin-socket", "/a", "--root", "/r1", "--root", "/r2",
			       "--loader", "/l", "--budget", "host=1G", "--budget", "*=50%", "--set",
			       "limits.sessions=9", "--log-level", "error"),
		     0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/s");
	cr_expect_str_eq(config.admin_socket, "/a");
	cr_expect_eq(config.root_count, 2);
	cr_expect_str_eq(config.loader, "/l");
	cr_expect_eq(config.budget_count, 2);
	cr_expect_eq(config.sessions, 9);
	cr_expect_eq(config.log_level, LOG_LEVEL_ERROR);
}

Test(config_flags, roots_of_flags_replace_those_of_the_file)
{
	cr_assert_eq(config_from("[loader]\nroot = /file1\nroot = /file2\n"), 0);
	cr_assert_eq(arguments("--config", config_path, "--root", "/flag", "--set", "loader.root=/other"), 0);
	cr_expect_eq(config.root_count, 2);
	cr_expect_str_eq(config.roots[0], "/flag");
	cr_expect_str_eq(config.roots[1], "/other");
	cr_assert_eq(arguments("--set", "loader.root=/alone"), 0);
	cr_expect_eq(config.root_count, 1);
}

Test(config_flags, of_a_loaders_path_and_socket_the_later_counts)
{
	char longest[128];

	cr_expect_str_eq(config.loader_socket, "");
	cr_assert_eq(config_from("[loader]\npath = /l\nsocket = /run/loader.sock\n"), 0, "%s",
		     config_error.message);
	cr_expect_str_eq(config.loader_socket, "/run/loader.sock");
	cr_expect_str_eq(config.loader, "/l");
	cr_assert_eq(arguments("--loader", "/other", "--config", config_path), 0);
	cr_expect_str_eq(config.loader_socket, "", "a flag did not win over the file");
	cr_expect_str_eq(config.loader, "/other");
	cr_assert_eq(arguments("--loader-socket", "/flag.sock"), 0);
	cr_expect_str_eq(config.loader_socket, "/flag.sock");
	expect_error(set("loader", "socket", "loader.sock"),
		     "[loader] socket = loader.sock: is no absolute path");
	expect_error(set("socket", "path", "/run/gpuwm/"), "[socket] path = /run/gpuwm/: names a folder");
	snprintf(longest, sizeof(longest), "/%0107d", 0);
	expect_error(set("loader", "socket", longest), "has 108 bytes; at most 107 are possible");
	cr_expect_str_eq(config.loader_socket, "/flag.sock");
}

Test(config_flags, flag_errors_name_the_flag)
{
	expect_error(arguments("--nonsense"), "gpuwmd has no option --nonsense");
	expect_error(arguments("--socket"), "--socket needs a value: --socket PATH");
	expect_error(arguments("-x"), "gpuwmd has no option -x");
	expect_error(arguments("start"), "gpuwmd takes options only, not 'start'");
	expect_error(arguments("--set", "sessions=5"), "--set takes SECTION.KEY=VALUE, not 'sessions=5'");
	expect_error(arguments("--set", "limits.sessions"), "--set takes SECTION.KEY=VALUE");
	expect_error(arguments("--budget", "host"), "--budget takes DEVICE=SIZE, not 'host'");
	expect_error(arguments("--log-level", "loud"), "[log] level = loud: is none of");
	cr_expect_eq(arguments("--config", "/nowhere"), -ENOENT);
}

Test(config_flags, flags_are_all_checked_before_one_counts)
{
	expect_error(arguments("--socket", "/flag.sock", "--nonsense"), "--nonsense");
	cr_expect_str_neq(config.socket, "/flag.sock");
}

Test(config_flags, sockets_that_serve_nobody_are_refused)
{
	expect_error(arguments("--socket", "/a", "--admin-socket", "/a"),
		     "path and admin_path in [socket] are both /a");
	config_init(&config);
	expect_error(arguments("--set", "socket.admin_group=ops"),
		     "admin_mode 0600 lets nobody in of admin_group ops");
	cr_expect_eq(arguments("--set", "socket.admin_mode=0660", "--set", "socket.group=w"), 0);
	expect_error(arguments("--set", "socket.group=w", "--set", "socket.mode=0640"),
		     "mode 0640 lets nobody in of group w");
}

Test(config_flags, a_context_is_not_kept_by_the_only_loader)
{
	expect_error(arguments("--set", "loader.keep_context=always", "--set", "limits.loaders=1"),
		     "keep_context needs a second loader for checks, and loaders in [limits] is 1");
	config_init(&config);
	cr_expect_eq(arguments("--set", "loader.keep_context=60", "--set", "limits.loaders=2"), 0, "%s",
		     config_error.message);
}

/* Joins the lines of an entry. */
static void lines_join(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from == '\n' && strncmp(from, "\n      ", 7) == 0)
			from += strspn(from, "\n ") - 1, *to++ = ' ';
		else
			*to++ = *from;
	}
	*to = '\0';
}

/* That it has every flag and key is what tests/ctl-help.sh sees. */
Test(config_flags, help_tells_flags_and_keys_with_their_defaults)
{
	static char text[16384];
	FILE *out;

	cr_redirect_stdout();
	cr_assert_eq(arguments("--help"), 1);
	fflush(stdout);
	out = cr_get_redirected_stdout();
	cr_assert_gt(fread(text, 1, sizeof(text) - 1, out), 0);
	lines_join(text);
	cr_expect(strstr(text, "  --budget DEVICE=SIZE"));
	cr_expect(strstr(text, "  sessions_per_uid = N") && strstr(text, "by default 8192"));
	cr_expect(strstr(text, "  DEVICE = SIZE"));
	cr_expect(strstr(text, "by default 90% of a GPU, 80% of the host's memory"));
	cr_expect(strstr(text, "by default only the budgets limit it\n"));
	cr_expect_not(strstr(text, "18446744073709551615"), "no limit is no number");
}

Test(config_flags, version_and_probes_are_printed)
{
	cr_redirect_stdout();
	cr_assert_eq(arguments("--version"), 1);
	fflush(stdout);
	cr_assert_stdout_eq_str("gpuwmd " GPUWM_VERSION "\nUSDT probes: " PROBES_BUILT_IN "\n");
}
