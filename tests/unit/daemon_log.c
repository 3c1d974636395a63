#include "daemon/base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int pipe_fds[2];
static char text[8192];

/* stderr is a pipe, so that its lines can be read back. */
static void capture(void)
{
	cr_assert_eq(pipe(pipe_fds), 0);
	cr_assert_eq(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
}

TestSuite(log, .init = capture);

static const char *written(void)
{
	ssize_t bytes;

	/* A mark that is always there makes the read end. */
	cr_assert_eq(write(STDERR_FILENO, "#", 1), 1);
	bytes = read(pipe_fds[0], text, sizeof(text) - 1);
	cr_assert_gt(bytes, 0);
	text[bytes - 1] = '\0';
	return text;
}

Test(log, line_names_its_level)
{
	log_init(LOG_LEVEL_DEBUG);
	log_error("one %d", 1);
	log_warning("two");
	log_info("three");
	log_debug("four");
	cr_expect_str_eq(written(), "gpuwmd: error: one 1\ngpuwmd: warning: two\ngpuwmd: info: three\n"
				    "gpuwmd: debug: four\n");
}

Test(log, texts_of_others_are_shown_with_all_that_is_in_them)
{
	log_init(LOG_LEVEL_INFO);
	log_info("command %s", "a\u202Eb\u200Bc\xff\n\u00e4");
	cr_expect_str_eq(written(), "gpuwmd: info: command a\\u{202E}b\\u{200B}c??\u00e4\n");
}

Test(log, level_hides_what_matters_less)
{
	log_init(LOG_LEVEL_WARNING);
	log_error("a");
	log_warning("b");
	log_info("c");
	log_debug("d");
	cr_expect_str_eq(written(), "gpuwmd: error: a\ngpuwmd: warning: b\n");
}

static void set_stream(unsigned long long device, unsigned long long inode)
{
	char stream[64];

	snprintf(stream, sizeof(stream), "%llu:%llu", device, inode);
	setenv("JOURNAL_STREAM", stream, 1);
}

Test(log, journal_gets_priorities)
{
	struct stat st;

	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	set_stream(st.st_dev, st.st_ino);
	log_init(LOG_LEVEL_DEBUG);
	log_error("a");
	log_warning("b");
	log_info("c");
	log_debug("d");
	cr_expect_str_eq(written(), "<3>a\n<4>b\n<6>c\n<7>d\n");
}

Test(log, another_stream_is_no_journal)
{
	struct stat st;

	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	set_stream(st.st_dev, st.st_ino + 1);
	log_init(LOG_LEVEL_INFO);
	log_error("a");
	set_stream(st.st_dev + 1, st.st_ino);
	log_init(LOG_LEVEL_INFO);
	log_error("b");
	setenv("JOURNAL_STREAM", "nonsense", 1);
	log_init(LOG_LEVEL_INFO);
	log_error("c");
	cr_expect_str_eq(written(), "gpuwmd: error: a\ngpuwmd: error: b\ngpuwmd: error: c\n");
}

Test(log, text_of_a_peer_makes_no_line_of_its_own)
{
	log_init(LOG_LEVEL_INFO);
	log_info("%s", "x\n<0>gpuwmd: error: forged\x1b[2J\x7f é");
	cr_expect_str_eq(written(), "gpuwmd: info: x?<0>gpuwmd: error: forged?[2J? é\n");
}

Test(log, long_line_is_cut_and_still_ends)
{
	static char longest[5000];

	memset(longest, 'x', sizeof(longest) - 1);
	log_init(LOG_LEVEL_INFO);
	log_info("%s", longest);
	log_info("%s", "");
	cr_expect_gt(strlen(written()), 3000);
	cr_expect_lt(strlen(text), 3200);
	cr_expect(strstr(text, "x\ngpuwmd: info: \n"));
}

Test(log, closed_stderr_does_no_harm)
{
	log_init(LOG_LEVEL_INFO);
	close(STDERR_FILENO);
	log_info("nobody reads this");
	set_stream(1, 1);
	log_init(LOG_LEVEL_INFO);
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

Test(log, a_pipe_that_nobody_reads_stops_nothing, .timeout = 60)
{
	static char all[1 << 20];
	ssize_t bytes;
	char end[200];

	log_init(LOG_LEVEL_INFO);
	for (int i = 0; i < 20000; i++)
		log_info("line %d", i);
	bytes = read(pipe_fds[0], all, sizeof(all) - 1);
	cr_assert_gt(bytes, 0);
	all[bytes] = 0;
	cr_assert_eq(all[bytes - 1], '\n', "a line is cut");
	for (bytes = 0; strchr(all + bytes, '\n'); bytes = strchr(all + bytes, '\n') - all + 1)
		cr_assert_eq(strncmp(all + bytes, "gpuwmd: info: line ", 19), 0);
	snprintf(end, sizeof(end), "gpuwmd: warning: nobody read gpuwmd's stderr: lines that are not there: ");
	log_info("again");
	log_info("once more");
	cr_expect_eq(strncmp(written(), end, strlen(end)), 0, "%s", text);
	cr_expect(strstr(text, "\ngpuwmd: info: again\ngpuwmd: info: once more\n"), "%s", text);
}
