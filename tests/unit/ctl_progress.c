/* What people see of a load that takes its time, by a clock that the test turns. */
#include "client/ctl/terminal.h"
#include "base/limits.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

static struct progress progress;
static char said[4096];

/* All that was printed since the test began. */
static const char *all(void)
{
	size_t got;

	fflush(stderr);
	got = fread(said + strlen(said), 1, sizeof(said) - 1 - strlen(said), cr_get_redirected_stderr());
	(void)got;
	return said;
}

static void begin(unsigned columns)
{
	cr_redirect_stderr();
	said[0] = '\0';
	progress_start(&progress, columns);
}

static void expect(const char *words)
{
	cr_expect(strstr(all(), words), "no \"%s\" in: %s", words, said);
}

Test(ctl_progress, a_terminal_shows_bytes_rate_and_time_left)
{
	begin(100);
	progress_update(&progress, "copying", 0, GIB(10), 1 * SECOND);
	progress_update(&progress, "copying", GIB(4), GIB(10), 3 * SECOND);
	expect(" 40%  4.0 GiB of 10.0 GiB  2.0 GiB/s, 0:03 left");
	progress_end(&progress);
	expect("\n");
}

Test(ctl_progress, a_terminal_shows_that_nothing_comes)
{
	begin(100);
	progress_update(&progress, "copying", 0, GIB(10), 1 * SECOND);
	progress_update(&progress, "copying", GIB(4), GIB(10), 3 * SECOND);
	progress_tick(&progress, 5 * SECOND);
	cr_expect_not(strstr(all(), "no progress for"), "%s", said);
	progress_tick(&progress, 78 * SECOND);
	expect("4.0 GiB of 10.0 GiB  no progress for 1:15");
	progress_update(&progress, "copying", GIB(5), GIB(10), 101 * SECOND);
	expect("51.2 MiB/s, 1:40 left");
}

Test(ctl_progress, a_terminal_shows_the_time_of_what_counts_nothing)
{
	begin(100);
	progress_update(&progress, "opening", 0, 0, 1 * SECOND);
	progress_tick(&progress, 8 * SECOND);
	expect("opening    0:07");
	/* The figures of the last phase that counted stay. */
	progress_update(&progress, "handing in", GIB(1), GIB(1), 9 * SECOND);
	progress_tick(&progress, 11 * SECOND);
	expect("handing in 0:02");
	cr_expect_not(strstr(said, "100%"), "%s", said);
}

Test(ctl_progress, without_a_terminal_there_is_a_line_a_phase_and_some_more)
{
	begin(0);
	progress_update(&progress, "opening", 0, 0, 1 * SECOND);
	progress_update(&progress, "copying", 0, GIB(40), 2 * SECOND);
	for (uint64_t second = 3; second <= 32; second++) {
		progress_update(&progress, "copying", GIB(second - 2), GIB(40), second * SECOND);
		progress_tick(&progress, second * SECOND);
	}
	progress_end(&progress);
	cr_expect_str_eq(all(), "opening\n"
				"copying: 40.0 GiB\n"
				"copying: 10.0 GiB of 40.0 GiB, 1.0 GiB/s, 0:30 left\n"
				"copying: 20.0 GiB of 40.0 GiB, 1.0 GiB/s, 0:20 left\n"
				"copying: 30.0 GiB of 40.0 GiB, 1.0 GiB/s, 0:10 left\n");
}

Test(ctl_progress, without_a_terminal_long_waits_show_too)
{
	begin(0);
	progress_update(&progress, "waiting for a loader", 0, 0, 1 * SECOND);
	progress_tick(&progress, 11 * SECOND);
	progress_tick(&progress, 12 * SECOND);
	cr_expect_str_eq(all(), "waiting for a loader\nwaiting for a loader: for 0:10\n");
}

static const char long_phase[] =
	"waiting for a loader: CUDA contexts of running jobs leave no room for ü its own";

Test(ctl_progress, without_a_terminal_a_long_phase_is_told_to_its_end)
{
	begin(0);
	progress_update(&progress, long_phase, 0, 0, 1 * SECOND);
	expect("leave no room for ü its own\n");
}

Test(ctl_progress, a_terminal_shows_what_a_line_holds_of_a_long_phase)
{
	begin(100);
	progress_update(&progress, long_phase, 0, 0, 1 * SECOND);
	progress_tick(&progress, 3 * SECOND);
	expect("\rwaiting for a loader: CUDA contexts of running jobs leave no ro 0:02\033[K");
	progress_update(&progress, long_phase + 8, 0, 0, 4 * SECOND);
	progress_tick(&progress, 6 * SECOND);
	expect("leave no room for  0:02");
}

Test(ctl_progress, a_phase_steers_no_terminal)
{
	begin(0);
	progress_update(&progress,
			"co\033[2Jpy\xc2\x9b"
			"2Jing ü\xff",
			0, 0, 1 * SECOND);
	cr_expect_str_eq(all(), "co?[2Jpy??2Jing ü?\n");
}

/* Of each line that was drawn; the text between "\r" and the sequence that clears the rest. */
static size_t widest(void)
{
	size_t most = 0;

	for (const char *line = strchr(all(), '\r'); line; line = strchr(line + 1, '\r')) {
		size_t width = 0;

		for (const char *c = line + 1; *c != '\0' && *c != '\033'; c++)
			width += ((unsigned char)*c & 0xC0) != 0x80;
		most = width > most ? width : most;
	}
	return most;
}

static void draw_all(unsigned columns)
{
	begin(columns);
	progress_update(&progress, long_phase, 0, 0, 1 * SECOND);
	progress_update(&progress, "handing in", GIB(700), GIB(1000), 2 * SECOND);
	progress_update(&progress, "handing in", GIB(999), GIB(1000), 300 * SECOND);
}

/* A wider one would go on in the next line, and the terminal would roll with every drawing. */
Test(ctl_progress, no_line_is_wider_than_the_terminal)
{
	draw_all(80);
	cr_expect_lt(widest(), 80, "%s", said);
	expect("handing in  99%  999.0 GiB of 1000.0 GiB  1.0 GiB/s, 0:01 left");
	draw_all(10);
	cr_expect_lt(widest(), 10, "%s", said);
	draw_all(1);
	cr_expect_eq(widest(), 0, "%s", said);
}
