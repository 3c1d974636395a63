#include "terminal.h"

#include "exit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* The screen without history that full-screen programs use; the cursor is hidden. */
static const char take_sequence[] = "\033[?1049h\033[?25l\033[H\033[2J";
static const char give_sequence[] = "\033[?25h\033[?1049l";

static struct {
	bool drawn_on; /* stdout is a terminal */
	bool keys; /* and so is stdin */
	struct termios before;
} screen;
static volatile sig_atomic_t redraw;

/* ---- the terminal, also in signal handlers ------------------------------ */

static void sequence_write(const char *sequence)
{
	ssize_t written = write(STDOUT_FILENO, sequence, strlen(sequence));

	(void)written;
}

static void terminal_take(void)
{
	struct termios without_lines = screen.before;

	without_lines.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	if (screen.keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &without_lines);
	if (screen.drawn_on)
		sequence_write(take_sequence);
}

static void terminal_give(void)
{
	if (screen.keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
	if (screen.drawn_on)
		sequence_write(give_sequence);
}

static void on_interrupt(int signal_number)
{
	(void)signal_number;
	terminal_give();
	_exit(EXIT_DONE);
}

/* The signal's own effect follows: the handler is gone by then. */
static void on_end(int signal_number)
{
	terminal_give();
	raise(signal_number);
}

static void on_stop(int signal_number)
{
	int saved = errno;

	(void)signal_number;
	terminal_give();
	raise(SIGSTOP);
	terminal_take();
	redraw = 1;
	errno = saved;
}

static void on_size(int signal_number)
{
	(void)signal_number;
	redraw = 1;
}

static void signal_handle(int signal_number, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	sigaction(signal_number, &action, NULL);
}

/* ---- begin and end ------------------------------------------------------- */

static void signals_handle(void)
{
	signal_handle(SIGINT, on_interrupt, 0);
	signal_handle(SIGTERM, on_end, (int)SA_RESETHAND);
	signal_handle(SIGHUP, on_end, (int)SA_RESETHAND);
	signal_handle(SIGQUIT, on_end, (int)SA_RESETHAND);
	if (!screen.drawn_on)
		return;
	signal_handle(SIGTSTP, on_stop, 0);
	signal_handle(SIGWINCH, on_size, 0);
}

void screen_begin(void)
{
	screen.drawn_on = terminal_is(STDOUT_FILENO);
	screen.keys = screen.drawn_on && tcgetattr(STDIN_FILENO, &screen.before) == 0;
	signals_handle();
	terminal_take();
}

void screen_begin_appending(void)
{
	signals_handle();
}

void screen_end(void)
{
	static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

	fflush(stdout);
	terminal_give();
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		signal_handle(handled[i], SIG_DFL, 0);
	screen.drawn_on = screen.keys = false;
}

/* ---- drawing -------------------------------------------------------------- */

/* Each line clears what the last drawing left behind it. The last row has no line feed: it would scroll. */
void screen_draw(const char *text)
{
	const size_t rows = terminal_rows(STDOUT_FILENO);
	size_t lines = 0, shown;

	if (!screen.drawn_on) {
		printf("%s\n", text);
		fflush(stdout);
		return;
	}
	for (const char *at = text; *at; at += strcspn(at, "\n") + (strchr(at, '\n') != NULL))
		lines++;
	shown = lines > rows ? rows - 1 : lines;
	fputs("\033[H", stdout);
	for (size_t i = 0; i < shown; i++) {
		size_t length = strcspn(text, "\n");

		printf("%s%.*s\033[K", i ? "\n" : "", (int)length, text);
		text += length + (text[length] == '\n');
	}
	if (lines > shown)
		printf("\n… and %zu more lines\033[K", lines - shown);
	fputs("\033[J", stdout);
	fflush(stdout);
}

/* ---- waiting --------------------------------------------------------------- */

int screen_wait(int fd, short events, int64_t ms)
{
	struct pollfd fds[] = {
		{.fd = fd, .events = events},
		{.fd = screen.keys ? STDIN_FILENO : -1, .events = POLLIN},
	};
	unsigned char key;
	int ready = redraw ? 0 : poll(fds, 2, ms > INT32_MAX ? INT32_MAX : (int)ms);

	if (redraw || (ready < 0 && errno == EINTR)) {
		redraw = 0;
		return SCREEN_RESIZED;
	}
	if (fds[1].revents)
		return read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
	return fds[0].revents ? SCREEN_READY : SCREEN_TIME;
}
