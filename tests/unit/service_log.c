#include "service/log.h"
#include "tests/support/any/own_folder.h"
#include "tests/support/any/stderr_pipe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static char text[8192];

static void log_of_gpuwmd(void)
{
	stderr_pipe();
	log_begin("gpuwmd");
}

TestSuite(log, .init = log_of_gpuwmd);

static void set_stream(unsigned long long device, unsigned long long inode)
{
	char stream[64];

	snprintf(stream, sizeof(stream), "%llu:%llu", device, inode);
	setenv("JOURNAL_STREAM", stream, 1);
}

Test(log, line_names_its_level)
{
	log_level_set(LOG_LEVEL_DEBUG);
	log_error("one %d", 1);
	log_warning("two");
	log_info("three");
	log_debug("four");
	cr_expect_str_eq(stderr_written(), "gpuwmd: error: one 1\ngpuwmd: warning: two\ngpuwmd: info: three\n"
					   "gpuwmd: debug: four\n");
}

Test(log, without_a_level_set_a_program_says_all_but_what_is_for_debugging)
{
	log_begin("program");
	log_info("one");
	log_debug("two");
	cr_expect_str_eq(stderr_written(), "program: info: one\n");
}

/* A loader's stderr is gpuwmd's, and so is its stream in the journal. */
Test(log, a_plain_line_names_its_program_everywhere)
{
	struct stat st;

	log_level_set(LOG_LEVEL_ERROR);
	log_plain("one\n");
	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	set_stream(st.st_dev, st.st_ino);
	log_line_date();
	log_plain("two");
	cr_expect_str_eq(stderr_written(), "gpuwmd: one?\ngpuwmd: two\n");
}

Test(log, texts_of_others_are_shown_with_all_that_is_in_them)
{
	log_level_set(LOG_LEVEL_INFO);
	log_info("command %s", "a\u202Eb\u200Bc\xff\n\u00e4");
	cr_expect_str_eq(stderr_written(), "gpuwmd: info: command a\\u{202E}b\\u{200B}c??\u00e4\n");
}

Test(log, level_hides_what_matters_less)
{
	log_level_set(LOG_LEVEL_WARNING);
	log_error("a");
	log_warning("b");
	log_info("c");
	log_debug("d");
	cr_expect_str_eq(stderr_written(), "gpuwmd: error: a\ngpuwmd: warning: b\n");
}

Test(log, journal_gets_priorities)
{
	struct stat st;

	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	set_stream(st.st_dev, st.st_ino);
	log_level_set(LOG_LEVEL_DEBUG);
	log_error("a");
	log_warning("b");
	log_info("c");
	log_debug("d");
	cr_expect_str_eq(stderr_written(), "<3>a\n<4>b\n<6>c\n<7>d\n");
}

Test(log, another_stream_is_no_journal)
{
	struct stat st;

	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	set_stream(st.st_dev, st.st_ino + 1);
	log_level_set(LOG_LEVEL_INFO);
	log_error("a");
	set_stream(st.st_dev + 1, st.st_ino);
	log_level_set(LOG_LEVEL_INFO);
	log_error("b");
	setenv("JOURNAL_STREAM", "nonsense", 1);
	log_level_set(LOG_LEVEL_INFO);
	log_error("c");
	cr_expect_str_eq(stderr_written(), "gpuwmd: error: a\ngpuwmd: error: b\ngpuwmd: error: c\n");
}

Test(log, text_of_a_peer_makes_no_line_of_its_own)
{
	log_level_set(LOG_LEVEL_INFO);
	log_info("%s", "x\n<0>gpuwmd: error: forged\x1b[2J\x7f é");
	cr_expect_str_eq(stderr_written(), "gpuwmd: info: x?<0>gpuwmd: error: forged?[2J? é\n");
}

/* Exactly one time, and it is the present one. */
Test(log, lines_have_their_time_once_they_are_dated)
{
	time_t before = time(NULL), said;
	struct tm parts = {0};
	const char *line, *rest;

	log_level_set(LOG_LEVEL_INFO);
	log_line_date();
	log_info("a");
	line = stderr_written();
	rest = strptime(line, "%Y-%m-%dT%H:%M:%S", &parts);
	cr_assert(rest && rest[0] == '.', "%s", line);
	said = timegm(&parts);
	cr_expect(said >= before && said <= time(NULL), "%s", line);
	cr_expect_str_eq(rest + strlen(".123"), "Z gpuwmd: info: a\n");
}

/* ---- fields ---- */

static const struct journal_field fields[] = {{"GPUWM_UID", "7"}, {"GPUWM_UNIT", NULL}, {"GPUWM_TAG", "v1"}};

static void to_journal_at(const char *path)
{
	struct stat st;

	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	set_stream(st.st_dev, st.st_ino);
	log_level_set(LOG_LEVEL_INFO);
	log_journal_at(path);
}

Test(log, journald_gets_fields_and_nobody_else_does)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int journald = socket(AF_UNIX, SOCK_DGRAM, 0);
	ssize_t bytes;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/journal", own_folder());
	cr_assert_eq(bind(journald, (struct sockaddr *)&address, sizeof(address)), 0);
	log_level_set(LOG_LEVEL_INFO);
	log_write_fields(LOG_LEVEL_INFO, fields, 3, "plain %d", 1);
	log_write_fields(LOG_LEVEL_DEBUG, fields, 3, "above the level");
	cr_expect_str_eq(stderr_written(), "gpuwmd: info: plain 1\n");
	to_journal_at(address.sun_path);
	log_line_date();
	log_write_fields(LOG_LEVEL_INFO, fields, 3, "in the\n\u202Ejournal");
	cr_expect_str_eq(stderr_written(), "");
	bytes = recv(journald, text, sizeof(text) - 1, MSG_DONTWAIT);
	cr_assert_gt(bytes, 0);
	text[bytes] = '\0';
	cr_expect_str_eq(text, "MESSAGE=in the?\\u{202E}journal\nPRIORITY=6\nSYSLOG_IDENTIFIER=gpuwmd\n"
			       "GPUWM_UID=7\nGPUWM_TAG=v1\n");
	unlink(address.sun_path);
	close(journald);
}

/* It never waits: a journald that does not read gets no more than its queue holds. */
Test(log, what_journald_does_not_take_goes_to_stderr)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int journald = socket(AF_UNIX, SOCK_DGRAM, 0);

	to_journal_at("/nonexistent/socket");
	log_write_fields(LOG_LEVEL_INFO, fields, 3, "nobody is there");
	cr_expect_str_eq(stderr_written(), "<6>nobody is there\n");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/journal", own_folder());
	cr_assert_eq(bind(journald, (struct sockaddr *)&address, sizeof(address)), 0);
	to_journal_at(address.sun_path);
	while (journal_send(address.sun_path, fields, 3))
		;
	log_write_fields(LOG_LEVEL_INFO, fields, 3, "it does not read");
	cr_expect_str_eq(stderr_written(), "<6>it does not read\n");
	unlink(address.sun_path);
	close(journald);
}

Test(log, long_line_is_cut_and_still_ends)
{
	static char longest[5000];
	const char *line;

	memset(longest, 'x', sizeof(longest) - 1);
	log_level_set(LOG_LEVEL_INFO);
	log_info("%s", longest);
	log_info("%s", "");
	line = stderr_written();
	cr_expect_gt(strlen(line), 3000);
	cr_expect_lt(strlen(line), 3200);
	cr_expect(strstr(line, "x\ngpuwmd: info: \n"));
}

Test(log, closed_stderr_does_no_harm)
{
	log_level_set(LOG_LEVEL_INFO);
	close(STDERR_FILENO);
	log_info("nobody reads this");
	set_stream(1, 1);
	log_level_set(LOG_LEVEL_INFO);
}

/* Blocking here would hang the test. */
Test(log, a_pipe_without_a_reader_does_no_harm, .timeout = 120)
{
	stderr_fill();
	log_info("nobody reads this");
	stderr_end();
	log_info("nor this");
}

Test(log, levels_are_parsed_by_name)
{
	enum log_level level = LOG_LEVEL_INFO;

	cr_expect(log_level_parse("error", &level) == 0 && level == LOG_LEVEL_ERROR);
	cr_expect(log_level_parse("warning", &level) == 0 && level == LOG_LEVEL_WARNING);
	cr_expect(log_level_parse("info", &level) == 0 && level == LOG_LEVEL_INFO);
	cr_expect(log_level_parse("debug", &level) == 0 && level == LOG_LEVEL_DEBUG);
	cr_expect_eq(log_level_parse("Debug", &level), -EINVAL);
	cr_expect_eq(log_level_parse("", &level), -EINVAL);
	cr_expect_eq(level, LOG_LEVEL_DEBUG);
}

/* A disk that is full takes nothing, until somebody makes room. The limit of a file's size ends no program that has begun to log. */
Test(log, a_log_that_is_full_says_later_how_many_lines_are_missing)
{
	struct rlimit none = {.rlim_max = RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
	char path[] = "/tmp/gpuwm-log-XXXXXX";
	ssize_t bytes;
	int file = mkstemp(path);

	cr_assert(file >= 0 && unlink(path) == 0);
	cr_assert_eq(dup2(file, STDERR_FILENO), STDERR_FILENO);
	log_level_set(LOG_LEVEL_INFO);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	log_info("one");
	log_info("two");
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
	log_info("three");
	bytes = pread(file, text, sizeof(text) - 1, 0);
	cr_assert_gt(bytes, 0);
	text[bytes] = '\0';
	cr_expect_str_eq(text, "gpuwmd: warning: the log could not be written (File too large): lines that are "
			       "not there: 2\ngpuwmd: info: three\n");
	close(file);
}

Test(log, a_pipe_that_nobody_reads_stops_nothing, .timeout = 60)
{
	const char *all, *line;
	char end[200];

	log_level_set(LOG_LEVEL_INFO);
	for (int i = 0; i < 20000; i++)
		log_info("line %d", i);
	all = stderr_read();
	cr_assert_eq(all[strlen(all) - 1], '\n', "a line is cut");
	for (line = all; strchr(line, '\n'); line = strchr(line, '\n') + 1)
		cr_assert_eq(strncmp(line, "gpuwmd: info: line ", 19), 0);
	snprintf(end, sizeof(end), "gpuwmd: warning: nobody read gpuwmd's stderr: lines that are not there: ");
	log_info("again");
	log_info("once more");
	line = stderr_written();
	cr_expect_eq(strncmp(line, end, strlen(end)), 0, "%s", line);
	cr_expect(strstr(line, "\ngpuwmd: info: again\ngpuwmd: info: once more\n"), "%s", line);
}
