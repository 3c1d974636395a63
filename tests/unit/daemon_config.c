#include "daemon/config/config.h"
#include "daemon/net/discard.h"
#include "daemon/net/fair.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config config;
static struct error error;
static char path[] = "/tmp/gpuwm-config-XXXXXX";

static void open_config(void)
{
	config_init(&config);
}

static void close_config(void)
{
	config_clear(&config);
	unlink(path);
}

TestSuite(config, .init = open_config, .fini = close_config);

static int set(const char *section, const char *key, const char *value)
{
	error = (struct error){0};
	return config_set(&config, section, key, value, &error);
}

static int read_bytes(const char *text, size_t bytes)
{
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, bytes), (ssize_t)bytes);
	close(fd);
	error = (struct error){0};
	return config_read(&config, path, &error);
}

static int read_text(const char *text)
{
	return read_bytes(text, strlen(text));
}

/* Arguments up to NULL, "gpuwmd" first. */
#define arguments(...) run_arguments((char *[]){"gpuwmd", __VA_ARGS__, NULL})
static int run_arguments(char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	error = (struct error){0};
	return config_arguments(&config, argc, argv, &error);
}

#define expect_error(call, text)                                                                               \
	do {                                                                                                   \
		cr_expect_eq((call), -EINVAL, "%s", #call);                                                    \
		cr_expect(strstr(error.message, (text)), "\"%s\" is not in \"%s\"", (text), error.message);    \
	} while (0)

Test(config, has_the_limits_as_defaults)
{
	cr_expect_eq(config.socket_mode, 0660);
	cr_expect_eq(config.admin_mode, 0600);
	cr_expect_str_eq(config.publish_group, "gpuwm-publish");
	cr_expect_str_eq(config.group, "");
	cr_expect_eq(config.root_count, 0);
	cr_expect_eq(config.sessions, SESSIONS_MAX);
	cr_expect_eq(config.loaders, LOADERS_MAX);
	cr_expect_eq(config.check_stall_ms, CHECK_STALL_MS);
	cr_expect_eq(config.scrub_interval, 86400);
	cr_expect_eq(config.scrub_duty, 1);
	cr_expect_eq(config.load_stall_ms, LOAD_STALL_MS);
	cr_expect_eq(config.grace_ms, GRACE_MS);
	cr_expect_eq(config.failed_keep_s, 86400);
	cr_expect_eq(config.keep_context_s, 0);
	cr_expect_eq(config.store_confirm_ms, STORE_CONFIRM_MS);
	cr_expect_eq(config.loader_start_ms, LOADER_START_MS);
	cr_expect_eq(config.log_level, LOG_LEVEL_INFO);
	cr_expect_eq(memcmp(&config.quota, &quota_defaults, sizeof(quota_defaults)), 0);
}

Test(config, sockets_are_where_clients_look)
{
	static char longest[PATH_BYTES_MAX + 1];

	if (geteuid() == 0) {
		cr_expect_str_eq(config.socket, "/run/gpuwm/gpuwm.sock");
		cr_expect_str_eq(config.admin_socket, "/run/gpuwm/admin.sock");
		cr_assert_eq(seteuid(65534), 0);
	}
	setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
	config_init(&config);
	cr_expect_str_eq(config.socket, "/run/user/1/gpuwm/gpuwm.sock");
	cr_expect_str_eq(config.admin_socket, "/run/user/1/gpuwm/admin.sock");
	setenv("XDG_RUNTIME_DIR", "relative", 1);
	config_init(&config);
	cr_expect_str_eq(config.socket, "/run/gpuwm/gpuwm.sock");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[0] = '/';
	setenv("XDG_RUNTIME_DIR", longest, 1);
	config_init(&config);
	cr_expect_str_eq(config.socket, "/run/gpuwm/gpuwm.sock");
	unsetenv("XDG_RUNTIME_DIR");
	config_init(&config);
	cr_expect_str_eq(config.socket, "/run/gpuwm/gpuwm.sock");
	/* The leak checker needs to look into the process at its end. */
	if (getuid() == 0)
		cr_assert(seteuid(0) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
}

/* This test program has no loader beside it, so the installed place is what is left. */
Test(config, loader_is_looked_for_beside_the_daemon)
{
	char program[PATH_BYTES_MAX + 1], loader[PATH_BYTES_MAX + 32];
	ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);

	cr_assert_gt(bytes, 0);
	program[bytes] = '\0';
	*strrchr(program, '/') = '\0';
	snprintf(loader, sizeof(loader), "%s/../libexec/gpuwm/gpuwm-loader", program);
	cr_expect_str_eq(config.loader, loader);
	snprintf(loader, sizeof(loader), "%s/gpuwm-loader", program);
	cr_assert_eq(symlink("/bin/true", loader), 0);
	config_init(&config);
	unlink(loader);
	cr_expect_str_eq(config.loader, loader);
}

Test(config, sets_every_key)
{
	cr_expect_eq(set("socket", "path", "/a/b.sock"), 0);
	cr_expect_eq(set("socket", "admin_path", "/c/d.sock"), 0);
	cr_expect_eq(set("socket", "mode", "0600"), 0);
	cr_expect_eq(set("socket", "group", "workers"), 0);
	cr_expect_eq(set("socket", "admin_mode", "660"), 0);
	cr_expect_eq(set("socket", "admin_group", "admins"), 0);
	cr_expect_eq(set("access", "publish_group", "makers"), 0);
	cr_expect_eq(set("loader", "path", "/l"), 0);
	cr_expect_eq(set("limits", "sessions", "10"), 0);
	cr_expect_eq(set("limits", "loaders", "2"), 0);
	cr_expect_eq(set("limits", "check_stall_ms", "500"), 0);
	cr_expect_eq(set("scrub", "interval", "0"), 0);
	cr_expect_eq(set("scrub", "duty", "100"), 0);
	cr_expect_eq(set("scrub", "duty", "101"), -EINVAL);
	cr_expect_eq(set("scrub", "duty", "0"), -EINVAL);
	cr_expect_eq(set("limits", "load_stall_ms", "0"), 0);
	cr_expect_eq(set("limits", "grace_ms", "0"), 0);
	cr_expect_eq(set("limits", "failed_keep_s", "0"), 0);
	cr_expect_eq(set("limits", "failed_keep_s", "31536001"), -EINVAL);
	cr_expect_eq(set("limits", "store_confirm_ms", "50"), 0);
	cr_expect_eq(set("limits", "loader_start_ms", "600"), 0);
	cr_expect_eq(set("log", "level", "debug"), 0);
	cr_expect_str_eq(config.socket, "/a/b.sock");
	cr_expect_str_eq(config.admin_socket, "/c/d.sock");
	cr_expect_eq(config.socket_mode, 0600);
	cr_expect_eq(config.admin_mode, 0660);
	cr_expect_str_eq(config.group, "workers");
	cr_expect_str_eq(config.admin_group, "admins");
	cr_expect_str_eq(config.publish_group, "makers");
	cr_expect_str_eq(config.loader, "/l");
	cr_expect_eq(config.sessions, 10);
	cr_expect_eq(config.loaders, 2);
	cr_expect_eq(config.check_stall_ms, 500);
	cr_expect_eq(config.scrub_interval, 0);
	cr_expect_eq(config.scrub_duty, 100);
	cr_expect_eq(config.load_stall_ms, 0);
	cr_expect_eq(config.grace_ms, 0);
	cr_expect_eq(config.failed_keep_s, 0);
	cr_expect_eq(config.store_confirm_ms, 50);
	cr_expect_eq(config.loader_start_ms, 600);
	cr_expect_eq(config.log_level, LOG_LEVEL_DEBUG);
}

Test(config, has_the_key_of_every_quota)
{
	for (int kind = 0; kind < QUOTA_KINDS; kind++) {
		cr_expect_eq(set("limits", quota_rows[kind].key, "17"), 0, "%s", quota_rows[kind].key);
		cr_expect_eq(config.quota.per_uid[kind], 17);
	}
}

Test(config, operators_socket_follows_unless_put_elsewhere)
{
	set("socket", "path", "/x/gpuwm.sock");
	cr_expect_str_eq(config.admin_socket, "/x/admin.sock");
	set("socket", "path", "/root.sock");
	cr_expect_str_eq(config.admin_socket, "/admin.sock");
	set("socket", "admin_path", "/y/op.sock");
	set("socket", "path", "/z/gpuwm.sock");
	cr_expect_str_eq(config.admin_socket, "/y/op.sock");
}

Test(config, roots_are_absolute_without_a_trailing_slash)
{
	cr_expect_eq(set("loader", "root", "/models///"), 0);
	cr_expect_eq(set("loader", "root", "/models"), 0, "again is no second one");
	cr_expect_eq(set("loader", "root", "/"), 0);
	cr_expect_eq(set("loader", "root", "/model"), 0);
	cr_expect_eq(config.root_count, 3);
	cr_expect_str_eq(config.roots[0], "/models");
	cr_expect_str_eq(config.roots[1], "/");
	cr_expect_str_eq(config.roots[2], "/model");
	expect_error(set("loader", "root", "models"), "[loader] root = models: is no absolute path");
	expect_error(set("loader", "root", "/m\xff"), "[loader] root = /m?: is not UTF-8");
}

Test(config, tables_have_an_end)
{
	char text[64];

	for (int i = 0; i < ROOTS_MAX; i++) {
		snprintf(text, sizeof(text), "/r%d", i);
		cr_assert_eq(set("loader", "root", text), 0);
	}
	expect_error(set("loader", "root", "/more"), "is one too many: at most 32 roots");
	for (int i = 0; i < CONFIG_BUDGETS_MAX; i++) {
		snprintf(text, sizeof(text), "GPU-01234567-89ab-cdef-0123-%012d", i);
		cr_assert_eq(set("budget", text, "1G"), 0);
	}
	expect_error(set("budget", "host", "1G"), "is one too many: at most 65 budgets");
}

Test(config, budgets_are_bytes_or_percentages)
{
	cr_expect_eq(set("budget", "host", "64G"), 0);
	cr_expect_eq(set("budget", "*", "90%"), 0);
	cr_expect_eq(set("budget", "host", "1024"), 0, "again replaces");
	cr_expect_eq(config.budget_count, 2);
	cr_expect_str_eq(config.budgets[0].device, "host");
	cr_expect_eq(config.budgets[0].bytes, 1024);
	cr_expect_eq(config.budgets[0].percent, 0);
	cr_expect_str_eq(config.budgets[1].device, "*");
	cr_expect_eq(config.budgets[1].bytes, 0);
	cr_expect_eq(config.budgets[1].percent, 90);
	cr_expect_eq(set("budget", "host", "0%"), 0);
	cr_expect_eq(set("budget", "host", "100%"), 0);
	cr_expect_eq(config.budgets[0].percent, 100);
	expect_error(set("budget", "host", "101%"), "is neither bytes");
	expect_error(set("budget", "host", "0000%"), "is neither bytes");
	expect_error(set("budget", "host", "%"), "is neither bytes");
	expect_error(set("budget", "host", "1.5G"), "is neither bytes");
	expect_error(set("budget", "cuda:0", "1G"), "[budget] cuda:0 = 1G: the device ");
}

Test(config, refusal_says_what_is_allowed)
{
	char longest[PATH_BYTES_MAX + 3];

	expect_error(set("limits", "sessions", "0"), "[limits] sessions = 0: is no number from 1 to 1000000");
	cr_expect_str_eq(error.detail, "connections in all");
	expect_error(set("limits", "sessions", "1000001"), "is no number from 1 to 1000000");
	expect_error(set("limits", "sessions", "-1"), "is no number");
	expect_error(set("limits", "sessions", ""), "is no number");
	expect_error(set("socket", "mode", "888"), "is no octal mode from 0 to 0777");
	expect_error(set("socket", "mode", "1000"), "is no octal mode");
	expect_error(set("socket", "mode", "66x"), "is no octal mode");
	expect_error(set("socket", "mode", ""), "is no octal mode");
	expect_error(set("socket", "group", "a b"), "is no name of a group");
	expect_error(set("log", "level", "loud"), "is none of error, warning, info, debug");
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	expect_error(set("loader", "path", longest), "has 4097 bytes; at most 4095 are possible");
	expect_error(set("socket", "group", longest + 1), "is no name of a group");
	longest[108] = '\0';
	expect_error(set("socket", "path", longest), "has 108 bytes; at most 107 are possible");
	longest[107] = '\0';
	cr_expect_eq(set("socket", "path", longest), 0);
}

Test(config, unknown_names_are_told_the_known_ones)
{
	expect_error(set("sockets", "path", "/a"), "there is no section [sockets]");
	cr_expect_str_eq(error.detail,
			 "there are [socket] [access] [model.N] [loader] [budget] [scrub] [limits] [log]");
	expect_error(set("loader", "paht", "/a"), "there is no key \"paht\" in [loader]");
	cr_expect_str_eq(error.detail, "there are path socket root keep_context");
}

Test(config, file_is_read)
{
	cr_assert_eq(read_text("# comment\n[socket]\npath = /x/gpuwm.sock ; where\n\n[loader]\nroot = /a\n"
			       "root = /b\n[budget]\nhost = 64G\n* = 90%\n[log]\nlevel=debug"),
		     0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/x/gpuwm.sock");
	cr_expect_str_eq(config.admin_socket, "/x/admin.sock");
	cr_expect_eq(config.root_count, 2);
	cr_expect_eq(config.budget_count, 2);
	cr_expect_eq(config.log_level, LOG_LEVEL_DEBUG);
}

static void expect_wrong_bytes(const char *text, size_t bytes, const char *after_path)
{
	char expected[256];

	strcpy(path + strlen(path) - 6, "XXXXXX");
	cr_expect_eq(read_bytes(text, bytes), -EINVAL);
	snprintf(expected, sizeof(expected), "%s:%s", path, after_path);
	cr_expect(strstr(error.message, expected), "\"%s\" is not in \"%s\"", expected, error.message);
	unlink(path);
}

static void expect_wrong(const char *text, const char *after_path)
{
	expect_wrong_bytes(text, strlen(text), after_path);
}

Test(config, file_error_names_the_line)
{
	static char longest[600];

	expect_wrong("[log]\n\nlevel = loud\nlevel = info\n", "3: [log] level = loud: is none of");
	expect_wrong("[socket]\npaht = /x\n", "2: there is no key \"paht\" in [socket]");
	expect_wrong("path = /x\n", "1: there is no section []");
	expect_wrong("[log]\nlevel\n[log]\nlevel = loud\n", "2: this is neither [section] nor key = value");
	expect_wrong("[log\n", "1: this is neither [section] nor key = value");
	expect_wrong("[log]\nlevel = loud\nnonsense\n", "2: [log] level = loud");
	snprintf(longest, sizeof(longest), "[loader]\nroot = /%0300d\n", 0);
	expect_wrong(longest, "2: the line has more than 198 bytes");
}

Test(config, file_with_a_zero_byte_is_refused)
{
	static const char why[] = "the line has more than 198 bytes, or a zero byte";
	static const struct {
		const char *text;
		size_t bytes;
		int line;
	} all[] = {
		{"\0\0\xff", 3, 1},
		{"\0", 1, 1},
		{"\0\n", 2, 1},
		{"[log]\nlevel = info\n\0", 20, 3},
		{"[log]\nlevel = info\0 hidden\n", 27, 2},
		{"[log]\nlevel = info\0 hidden", 26, 2},
		{"[log]\nlevel = info\0\nlevel = loud\n", 34, 2},
	};
	char expected[128];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(expected, sizeof(expected), "%d: %s", all[i].line, why);
		expect_wrong_bytes(all[i].text, all[i].bytes, expected);
	}
}

Test(config, file_that_is_not_there_is_named)
{
	cr_expect_eq(config_read(&config, "/nowhere/gpuwmd.conf", &error), -ENOENT);
	cr_expect(strstr(error.message, "configuration /nowhere/gpuwmd.conf: No such file"), "%s",
		  error.message);
	cr_expect_eq(config_read(&config, "/tmp", &error), -EIO, "a folder opens, but can't be read");
}

Test(config, flags_win_over_the_file_in_any_order)
{
	cr_assert_eq(read_text("[socket]\npath = /file.sock\n[log]\nlevel = error\n[limits]\nsessions = 5\n"),
		     0);
	cr_assert_eq(arguments("--log-level", "debug", "--config", path, "--socket=/flag.sock"), 0, "%s",
		     error.message);
	cr_expect_str_eq(config.socket, "/flag.sock");
	cr_expect_eq(config.log_level, LOG_LEVEL_DEBUG);
	cr_expect_eq(config.sessions, 5);
}

Test(config, every_flag_counts)
{
	cr_assert_eq(arguments("--socket", "/s", "--admin-socket", "/a", "--root", "/r1", "--root", "/r2",
			       "--loader", "/l", "--budget", "host=1G", "--budget", "*=50%", "--set",
			       "limits.sessions=9", "--log-level", "error"),
		     0, "%s", error.message);
	cr_expect_str_eq(config.socket, "/s");
	cr_expect_str_eq(config.admin_socket, "/a");
	cr_expect_eq(config.root_count, 2);
	cr_expect_str_eq(config.loader, "/l");
	cr_expect_eq(config.budget_count, 2);
	cr_expect_eq(config.sessions, 9);
	cr_expect_eq(config.log_level, LOG_LEVEL_ERROR);
}

Test(config, roots_of_flags_replace_those_of_the_file)
{
	cr_assert_eq(read_text("[loader]\nroot = /file1\nroot = /file2\n"), 0);
	cr_assert_eq(arguments("--config", path, "--root", "/flag", "--set", "loader.root=/other"), 0);
	cr_expect_eq(config.root_count, 2);
	cr_expect_str_eq(config.roots[0], "/flag");
	cr_expect_str_eq(config.roots[1], "/other");
	cr_assert_eq(arguments("--set", "loader.root=/alone"), 0);
	cr_expect_eq(config.root_count, 1);
}

Test(config, of_a_loaders_path_and_socket_the_later_counts)
{
	char longest[128];

	cr_expect_str_eq(config.loader_socket, "");
	cr_assert_eq(read_text("[loader]\npath = /l\nsocket = /run/loader.sock\n"), 0, "%s", error.message);
	cr_expect_str_eq(config.loader_socket, "/run/loader.sock");
	cr_expect_str_eq(config.loader, "/l");
	cr_assert_eq(arguments("--loader", "/other", "--config", path), 0);
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

Test(config, flag_errors_name_the_flag)
{
	expect_error(arguments("--nonsense"), "--nonsense: there is no such flag");
	expect_error(arguments("--socket"), "--socket: its value is missing");
	expect_error(arguments("-x"), "-x: there is no such flag");
	expect_error(arguments("start"), "start: arguments without a flag are not taken");
	expect_error(arguments("--set", "sessions=5"), "--set: its value has the form SECTION.KEY=VALUE");
	expect_error(arguments("--set", "limits.sessions"), "--set: its value has the form");
	expect_error(arguments("--budget", "host"), "--budget: its value has the form");
	expect_error(arguments("--log-level", "loud"), "[log] level = loud: is none of");
	cr_expect_eq(arguments("--config", "/nowhere"), -ENOENT);
}

Test(config, flags_are_all_checked_before_one_counts)
{
	expect_error(arguments("--socket", "/flag.sock", "--nonsense"), "--nonsense");
	cr_expect_str_neq(config.socket, "/flag.sock");
}

Test(config, sockets_that_serve_nobody_are_refused)
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

Test(config, contexts_are_kept_for_a_time_or_always)
{
	cr_expect_eq(set("loader", "keep_context", "600"), 0);
	cr_expect_eq(config.keep_context_s, 600);
	cr_expect_eq(set("loader", "keep_context", "always"), 0);
	cr_expect_eq(config.keep_context_s, KEEP_ALWAYS);
	cr_expect_eq(set("loader", "keep_context", "0"), 0);
	cr_expect_eq(config.keep_context_s, 0);
	expect_error(set("loader", "keep_context", "never"),
		     "is neither always nor a number of seconds from 0 to 31536000");
	expect_error(set("loader", "keep_context", "-1"), "is neither always nor a number of seconds");
}

Test(config, a_context_is_not_kept_by_the_only_loader)
{
	expect_error(arguments("--set", "loader.keep_context=always", "--set", "limits.loaders=1"),
		     "keep_context needs a second loader for checks, and loaders in [limits] is 1");
	config_init(&config);
	cr_expect_eq(arguments("--set", "loader.keep_context=60", "--set", "limits.loaders=2"), 0, "%s",
		     error.message);
}

/* That it has every flag and key is what tests/ctl-help.sh sees. */
Test(config, help_tells_flags_and_keys_with_their_defaults)
{
	static char text[16384];
	FILE *out;

	cr_redirect_stdout();
	cr_assert_eq(arguments("--help"), 1);
	fflush(stdout);
	out = cr_get_redirected_stdout();
	cr_assert_gt(fread(text, 1, sizeof(text) - 1, out), 0);
	cr_expect(strstr(text, "  --budget DEVICE=SIZE"));
	cr_expect(strstr(text, "  sessions_per_uid = N") && strstr(text, "by default 8192"));
	cr_expect(strstr(text, "  DEVICE = SIZE"));
	cr_expect(strstr(text, "by default 90% of a GPU, 80% of the host's memory"));
	cr_expect(strstr(text, "by default only the budgets limit it\n"));
	cr_expect_not(strstr(text, "18446744073709551615"), "no limit is no number");
}

Test(config, version_is_printed)
{
	cr_redirect_stdout();
	cr_assert_eq(arguments("--version"), 1);
	fflush(stdout);
	cr_assert_stdout_eq_str("gpuwmd " GPUWM_VERSION "\n");
}

static void limit_files(uint64_t soft, uint64_t hard)
{
	struct rlimit files = {.rlim_cur = soft, .rlim_max = hard};

	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}

Test(config, soft_limit_of_files_is_raised_to_what_is_needed)
{
	struct rlimit files;

	config.sessions = 100;
	config.loaders = 2;
	limit_files(1024, 8192);
	cr_assert_eq(config_check_files(&config, &error), 0, "%s", error.message);
	getrlimit(RLIMIT_NOFILE, &files);
	cr_expect_eq(files.rlim_cur, 64 + FAIR_SHARES_MAX + 2 * DISCARD_MAX + 2 * ADMIN_SESSIONS_MORE +
					     2 * 100 + 4 * 2 + STORE_FDS_MAX + REVOKED_GONE_MAX +
					     CHECKS_OPEN_MAX + PACKET_FDS_MAX);
	cr_expect_eq(files.rlim_max, 8192);
	cr_assert_eq(config_check_files(&config, &error), 0, "enough already");
}

Test(config, hard_limit_of_files_that_is_too_low_is_refused)
{
	limit_files(1024, 4096);
	cr_assert_eq(config_check_files(&config, &error), -EMFILE);
	cr_expect(strstr(error.message, "7936 sessions need up to 19965 open files, the hard limit is 4096"),
		  "%s", error.message);
	cr_expect(strstr(error.detail, "LimitNOFILE="), "%s", error.detail);
}
