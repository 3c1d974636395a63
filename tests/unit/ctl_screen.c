/* A live view in a pseudo terminal: what a terminal's user would see of it, and what is left of it at the end. */
#include "client/ctl/terminal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define TAKES "\033[?1049h"
#define GIVES "\033[?1049l"
#define FOREVER_MS 60000

static int terminal; /* the user's side */
static pid_t child;
static char seen[4096];

/* Runs `view` in a child process with a terminal of five rows. */
static void begin(void (*view)(void))
{
	struct winsize size = {.ws_row = 5, .ws_col = 20};

	unsetenv("LINES");
	seen[0] = '\0';
	child = forkpty(&terminal, NULL, NULL, &size);
	cr_assert_geq(child, 0);
	if (child == 0) {
		view();
		_exit(42);
	}
}

/* Reads until the text has come; NULL: until the child has ended. */
static void see(const char *text)
{
	while (!text || !strstr(seen, text)) {
		size_t have = strlen(seen);
		ssize_t got = read(terminal, seen + have, sizeof(seen) - 1 - have);

		if (got <= 0 && !text)
			return;
		cr_assert_gt(got, 0, "no %s in: %s", text, seen);
		seen[have + (size_t)got] = '\0';
	}
}

static void press(const char *keys)
{
	cr_assert_eq(write(terminal, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static int end(void)
{
	int status;

	see(NULL);
	cr_assert_eq(waitpid(child, &status, 0), child);
	close(terminal);
	return status;
}

static void draw_and_wait(void)
{
	screen_begin();
	screen_draw("one\ntwo\n");
	if (screen_wait(-1, 0, FOREVER_MS) == 'q')
		screen_end();
}

static bool has_echo(void)
{
	struct termios now;

	cr_assert_eq(tcgetattr(terminal, &now), 0);
	return now.c_lflag & ECHO;
}

Test(ctl_screen, a_key_comes_at_once_and_the_end_gives_the_terminal_back)
{
	begin(draw_and_wait);
	see("two\033[K");
	cr_expect(strstr(seen, TAKES));
	cr_expect_not(has_echo());
	cr_expect_not(strstr(seen, GIVES));
	press("q");
	see(GIVES);
	cr_expect(has_echo());
	cr_expect_eq(WEXITSTATUS(end()), 42);
}

Test(ctl_screen, ctrl_c_gives_the_terminal_back_and_is_a_success)
{
	int status;

	begin(draw_and_wait);
	see("two");
	press("\003");
	see(GIVES);
	cr_expect(has_echo());
	status = end();
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(ctl_screen, a_signal_that_ends_gives_the_terminal_back_and_ends)
{
	int status;

	begin(draw_and_wait);
	see("two");
	kill(child, SIGTERM);
	see(GIVES);
	status = end();
	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

Test(ctl_screen, a_stopped_view_gives_the_terminal_back_until_it_goes_on)
{
	int status;

	begin(draw_and_wait);
	see("two");
	press("\032");
	cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
	cr_assert(WIFSTOPPED(status));
	see(GIVES);
	cr_expect(has_echo());
	seen[0] = '\0';
	kill(child, SIGCONT);
	see(TAKES);
	end();
}

static void draw_seven(void)
{
	screen_begin();
	screen_draw("1\n2\n3\n4\n5\n6\n7\n");
	screen_draw("1\n2\n3\n4\n5\n");
	screen_end();
}

Test(ctl_screen, lines_without_a_row_are_counted)
{
	begin(draw_seven);
	end();
	cr_expect(strstr(seen,
			 "\033[H1\033[K\r\n2\033[K\r\n3\033[K\r\n4\033[K\r\n… and 3 more lines\033[K\033[J"),
		  "%s", seen);
	cr_expect(strstr(seen, "4\033[K\r\n5\033[K\033[J"), "%s", seen);
}

static void wait_for_size(void)
{
	screen_begin();
	screen_draw("ready\n");
	if (screen_wait(-1, 0, FOREVER_MS) == SCREEN_RESIZED)
		_exit(7);
}

Test(ctl_screen, another_size_is_a_reason_to_draw_again)
{
	struct winsize size = {.ws_row = 9, .ws_col = 40};

	begin(wait_for_size);
	see("ready");
	cr_assert_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
	cr_expect_eq(WEXITSTATUS(end()), 7);
}

static void append_and_wait(void)
{
	screen_begin_appending();
	screen_draw("one\n");
	screen_wait(-1, 0, FOREVER_MS);
}

Test(ctl_screen, what_is_appended_leaves_the_terminal_as_it_is)
{
	int status;

	begin(append_and_wait);
	see("one\r\n\r\n");
	cr_expect(has_echo());
	cr_expect_not(strstr(seen, TAKES));
	press("\003");
	status = end();
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(ctl_screen, without_a_terminal_a_drawing_is_appended_and_a_descriptor_ends_the_wait)
{
	int out[2], ready[2];
	char text[64] = "";

	cr_assert_eq(pipe(out), 0);
	cr_assert_eq(pipe(ready), 0);
	cr_assert_eq(write(ready[1], "x", 1), 1);
	dup2(out[1], STDOUT_FILENO);
	screen_begin();
	screen_draw("one\n");
	cr_expect_eq(screen_wait(ready[0], POLLIN, FOREVER_MS), SCREEN_READY);
	cr_expect_eq(screen_wait(-1, 0, 0), SCREEN_TIME);
	screen_end();
	cr_expect_gt(read(out[0], text, sizeof(text) - 1), 0);
	cr_expect_str_eq(text, "one\n\n");
}
