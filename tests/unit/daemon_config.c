/* Keys of the configuration, its file, and what it says of itself. */
#include "daemon/net/net.h"
#include "daemon/net/fair.h"
#include "tests/support/daemon/configuration.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

TestSuite(config, .init = config_open, .fini = config_close);

/* Keys whose values are numbers: a value that is set, and what is there before. */
static const struct {
	const char *section, *key, *text;
	const uint64_t *value;
	uint64_t set, first;
} numbers[] = {
	{"limits", "sessions", "10", &config.sessions, 10, SESSIONS_MAX},
	{"limits", "loaders", "2", &config.loaders, 2, LOADERS_MAX},
	{"limits", "check_stall_ms", "500", &config.check_stall_ms, 500, CHECK_STALL_MS},
	{"limits", "load_stall_ms", "0", &config.load_stall_ms, 0, LOAD_STALL_MS},
	{"limits", "grace_ms", "0", &config.grace_ms, 0, GRACE_MS},
	{"limits", "failed_keep_s", "0", &config.failed_keep_s, 0, 86400},
	{"limits", "store_confirm_ms", "50", &config.store_confirm_ms, 50, STORE_CONFIRM_MS},
	{"limits", "loader_start_ms", "600", &config.loader_start_ms, 600, LOADER_START_MS},
	{"scrub", "interval", "0", &config.scrub_interval, 0, 86400},
	{"scrub", "duty", "100", &config.scrub_duty, 100, 1},
	{"loader", "keep_context", "600", &config.keep_context_s, 600, 0},
	{"loader", "keep_context", "always", &config.keep_context_s, KEEP_ALWAYS, 0},
	{"loader", "keep_context", "0", &config.keep_context_s, 0, 0},
	{"loader", "keep_checker", "0", &config.keep_checker_s, 0, CHECKER_KEEP_SECONDS},
	{"loader", "keep_copy", "0", &config.keep_copy_s, 0, COPY_KEEP_SECONDS},
};
#define NUMBERS (sizeof(numbers) / sizeof(*numbers))

/* Keys whose values are texts. */
static const struct {
	const char *section, *key, *text, *value;
} texts[] = {
	{"socket", "path", "/a/b.sock", config.socket},
	{"socket", "admin_path", "/c/d.sock", config.admin_socket},
	{"socket", "group", "workers", config.group},
	{"socket", "admin_group", "admins", config.admin_group},
	{"access", "publish_group", "makers", config.publish_group},
	{"loader", "path", "/l", config.loader},
};

Test(config, has_the_limits_as_defaults)
{
	for (size_t i = 0; i < NUMBERS; i++)
		cr_expect_eq(*numbers[i].value, numbers[i].first, "%s", numbers[i].key);
	cr_expect(config.socket_mode == 0660 && config.admin_mode == 0600);
	cr_expect_str_eq(config.publish_group, "gpuwm-publish");
	cr_expect_str_eq(config.group, "");
	cr_expect_eq(config.root_count, 0);
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
	for (size_t i = 0; i < NUMBERS; i++) {
		cr_expect_eq(set(numbers[i].section, numbers[i].key, numbers[i].text), 0, "%s",
			     config_error.message);
		cr_expect_eq(*numbers[i].value, numbers[i].set, "%s", numbers[i].key);
	}
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		cr_expect_eq(set(texts[i].section, texts[i].key, texts[i].text), 0, "%s", config_error.message);
		cr_expect_str_eq(texts[i].value, texts[i].text);
	}
	cr_expect_eq(set("socket", "mode", "0600"), 0);
	cr_expect_eq(set("socket", "admin_mode", "660"), 0);
	cr_expect(config.socket_mode == 0600 && config.admin_mode == 0660);
	cr_expect_eq(set("log", "level", "debug"), 0);
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
	static char longest[PATH_BYTES_MAX + 3], too_long_path[109];
	const struct {
		const char *section, *key, *value, *message;
	} refused[] = {
		{"limits", "sessions", "1000001", "is no number from 1 to 1000000"},
		{"limits", "sessions", "-1", "is no number"},
		{"limits", "sessions", "", "is no number"},
		{"limits", "failed_keep_s", "31536001", "is no number from 0 to 31536000"},
		{"scrub", "duty", "101", "is no number from 1 to 100"},
		{"scrub", "duty", "0", "is no number from 1 to 100"},
		{"loader", "keep_context", "never",
		 "is neither always nor a number of seconds from 0 to 31536000"},
		{"loader", "keep_context", "-1", "is neither always nor a number of seconds"},
		{"socket", "mode", "888", "is no octal mode from 0 to 0777"},
		{"socket", "mode", "1000", "is no octal mode"},
		{"socket", "mode", "66x", "is no octal mode"},
		{"socket", "mode", "", "is no octal mode"},
		{"socket", "group", "a b", "is no name of a group"},
		{"socket", "group", longest + 1, "is no name of a group"},
		{"log", "level", "loud", "is none of error, warning, info, debug"},
		{"loader", "path", longest, "has 4097 bytes; at most 4095 are possible"},
		{"socket", "path", too_long_path, "has 108 bytes; at most 107 are possible"},
		{"limits", "sessions", "0", "[limits] sessions = 0: is no number from 1 to 1000000"},
	};

	memset(longest, 'x', sizeof(longest) - 1);
	longest[0] = '/';
	memcpy(too_long_path, longest, 108);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		expect_error(set(refused[i].section, refused[i].key, refused[i].value), refused[i].message);
	cr_expect_str_eq(config_error.detail, "connections in all");
	too_long_path[107] = '\0';
	cr_expect_eq(set("socket", "path", too_long_path), 0);
}

Test(config, unknown_names_are_told_the_known_ones)
{
	expect_error(set("sockets", "path", "/a"), "there is no section [sockets]");
	cr_expect_str_eq(
		config_error.detail,
		"there are [socket] [access] [model.N] [tiers] [loader] [budget] [scrub] [peers] [limits] [log]");
	expect_error(set("loader", "paht", "/a"), "there is no key \"paht\" in [loader]");
	cr_expect_str_eq(config_error.detail, "there are path socket root keep_context keep_checker keep_copy");
}

Test(config, file_is_read)
{
	cr_assert_eq(config_from("# comment\n[socket]\npath = /x/gpuwm.sock ; where\n\n[loader]\nroot = /a\n"
				 "root = /b\n[budget]\nhost = 64G\n* = 90%\n[log]\nlevel=debug"),
		     0, "%s", config_error.message);
	cr_expect_str_eq(config.socket, "/x/gpuwm.sock");
	cr_expect_str_eq(config.admin_socket, "/x/admin.sock");
	cr_expect_eq(config.root_count, 2);
	cr_expect_eq(config.budget_count, 2);
	cr_expect_eq(config.log_level, LOG_LEVEL_DEBUG);
}

static void expect_wrong_bytes(const char *text, size_t bytes, const char *after_path)
{
	char expected[256];

	cr_expect_eq(config_from_bytes(text, bytes), -EINVAL);
	snprintf(expected, sizeof(expected), "%s:%s", config_path, after_path);
	cr_expect(strstr(config_error.message, expected), "\"%s\" is not in \"%s\"", expected,
		  config_error.message);
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
	cr_expect_eq(config_read(&config, "/nowhere/gpuwmd.conf", &config_error), -ENOENT);
	cr_expect(strstr(config_error.message, "configuration /nowhere/gpuwmd.conf: No such file"), "%s",
		  config_error.message);
	cr_expect_eq(config_read(&config, "/tmp", &config_error), -EIO, "a folder opens, but can't be read");
	cr_expect(strstr(config_error.message, "configuration /tmp: Is a directory"), "%s",
		  config_error.message);
	cr_expect(strstr(config_error.detail, "name another one with --config"), "%s", config_error.detail);
}

Test(config, file_that_gpuwmd_may_not_read_names_the_user)
{
	char path[] = "/tmp/gpuwm-test-XXXXXX", detail[128];
	int fd = mkstemp(path);

	cr_assert(fd >= 0 && fchmod(fd, 0) == 0);
	if (geteuid() == 0)
		cr_assert_eq(seteuid(65534), 0);
	snprintf(detail, sizeof(detail), "it is read as uid %u: change its owner", (unsigned)geteuid());
	cr_expect_eq(config_read(&config, path, &config_error), -EACCES);
	cr_expect(strstr(config_error.detail, detail), "%s", config_error.detail);
	if (getuid() == 0)
		cr_assert_eq(seteuid(0), 0);
	close(fd);
	unlink(path);
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
	cr_assert_eq(config_check_files(&config, &config_error), 0, "%s", config_error.message);
	getrlimit(RLIMIT_NOFILE, &files);
	cr_expect_eq(files.rlim_cur, 64 + FAIR_SHARES_MAX + 2 * DISCARD_MAX + 2 * ADMIN_SESSIONS_MORE +
					     2 * 100 + 4 * 2 + 2 * COPIES_MAX + STORE_FDS_MAX +
					     REVOKED_GONE_MAX + 2 + 2 * PARTS_PER_VERSION_MAX +
					     CHECKS_OPEN_MAX + PACKET_FDS_MAX);
	cr_expect_eq(files.rlim_max, 8192);
	cr_assert_eq(config_check_files(&config, &config_error), 0, "enough already");
}

Test(config, hard_limit_of_files_that_is_too_low_is_refused)
{
	limit_files(1024, 4096);
	cr_assert_eq(config_check_files(&config, &config_error), -EINVAL);
	cr_expect(strstr(config_error.message,
			 "7872 sessions need up to 19999 open files, the hard limit is 4096"),
		  "%s", config_error.message);
	cr_expect(strstr(config_error.detail, "LimitNOFILE="), "%s", config_error.detail);
}

/* ---- groups ---- */

static const struct config_judge passed = {.worker_passed = true, .admin_passed = true};

static void expect_no_group(const char *key)
{
	char words[128];

	snprintf(words, sizeof(words), "%s: there is no group \"no-such-group\" here", key);
	cr_assert_eq(config_check_machine(&config, &passed, &config_error), -EINVAL);
	cr_expect_str_eq(config_error.message, words);
	cr_expect(strstr(config_error.detail, "name a group of this machine"), "%s", config_error.detail);
}

Test(config, groups_of_the_sockets_have_to_be_there)
{
	strcpy(config.group, "no-such-group");
	expect_no_group("[socket] group");
	strcpy(config.group, "root");
	strcpy(config.admin_group, "no-such-group");
	expect_no_group("[socket] admin_group");
	strcpy(config.admin_group, "4294967295"); /* nobody's */
	cr_expect_eq(config_check_machine(&config, &passed, &config_error), -EINVAL);
	strcpy(config.admin_group, "1234567"); /* a number needs no name */
	cr_expect_eq(config_check_machine(&config, &passed, &config_error), 0, "%s", config_error.message);
}

Test(config, groups_of_access_have_to_be_there_if_somebody_named_them)
{
	strcpy(config.publish_group, "no-such-group");
	expect_no_group("[access] publish_group");
	strcpy(config.publish_group, PUBLISH_GROUP);
	strcpy(config.observe_group, "no-such-group");
	expect_no_group("[access] observe_group");
	strcpy(config.observe_group, "root");
	cr_expect_eq(config_check_machine(&config, &passed, &config_error), 0, "%s", config_error.message);
	strcpy(config.observe_group, OBSERVE_GROUP);
	cr_expect_eq(config_check_machine(&config, &passed, &config_error), 0, "%s", config_error.message);
	config.publish_group[0] = config.observe_group[0] = '\0'; /* nobody's */
	cr_expect_eq(config_check_machine(&config, &passed, &config_error), 0, "%s", config_error.message);
}

/* ---- sockets ---- */

#define NOBODY 65534

/* A folder with a socket, as the last gpuwmd left it, and its lock. */
static void left_make(void)
{
	static char folder[] = "/tmp/gpuwm-config-XXXXXX";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char lock[sizeof(config.socket) + 8];

	cr_assert(mkdtemp(folder));
	snprintf(config.socket, sizeof(config.socket), "%s/s", folder);
	memcpy(address.sun_path, config.socket, strlen(config.socket) + 1);
	snprintf(lock, sizeof(lock), "%s.lock", config.socket);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	close(sock);
	close(open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	cr_assert(chmod(folder, 0755) == 0 && chown(lock, NOBODY, NOBODY) == 0 &&
		  chown(config.socket, NOBODY, 12345) == 0);
}

static void left_remove(void)
{
	char lock[sizeof(config.socket) + 8];

	snprintf(lock, sizeof(lock), "%s.lock", config.socket);
	unlink(lock);
	unlink(config.socket);
	*strrchr(config.socket, '/') = '\0';
	cr_expect_eq(rmdir(config.socket), 0);
}

/* The folder is root's, so that nothing new can be made there; and the group is none of this user's. */
Test(config, the_last_gpuwmds_socket_may_stay_where_it_is_with_its_group)
{
	struct config_judge own = {.admin_passed = true};
	const struct config_judge trial = {.admin_passed = true, .may_be_other = true};

	if (geteuid() != 0)
		cr_skip_test("only root can be somebody else");
	left_make();
	strcpy(config.group, "12345");
	cr_assert_eq(config_check_files(&config, &config_error), 0, "%s", config_error.message);
	cr_assert_eq(seteuid(NOBODY), 0);
	log_level_set(LOG_LEVEL_ERROR);
	cr_expect_eq(config_check_machine(&config, &own, &config_error), -EINVAL, "it is nobody's, and goes");
	strcpy(own.worker_at, config.socket);
	cr_expect_eq(config_check_machine(&config, &own, &config_error), 0, "%s", config_error.message);
	strcpy(config.group, "54321");
	cr_expect_eq(config_check_machine(&config, &own, &config_error), -EINVAL);
	cr_expect(strstr(config_error.message, "[socket] group: uid 65534 may not give the socket "), "%s",
		  config_error.message);
	cr_expect_eq(config_check_machine(&config, &trial, &config_error), 0, "another user may");
	config.group[0] = '\0';
	strcat(config.socket, "2");
	cr_expect_eq(config_check_machine(&config, &own, &config_error), -EINVAL);
	cr_expect(strstr(config_error.message, "[socket] path: gpuwmd can't write into the folder "), "%s",
		  config_error.message);
	cr_expect_eq(config_check_machine(&config, &trial, &config_error), 0, "another user may");
	config.socket[strlen(config.socket) - 1] = '\0';
	cr_assert_eq(seteuid(0), 0);
	left_remove();
}
