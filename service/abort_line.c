#include "abort_line.h"

#include "log_line.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

/* The lines are written beforehand, since a signal handler must not format text. */
struct line {
	char text[512];
	size_t bytes;
};

static struct line gave_up, was_sent;

__attribute__((format(printf, 3, 4))) static void prepare(struct line *line, const char *program,
							  const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	line->bytes = log_line(line->text, sizeof(line->text), log_is_journal() ? NULL : program,
			       LOG_LEVEL_ERROR, format, arguments);
	va_end(arguments);
}

static void on_abort(int number, siginfo_t *info, void *context)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	bool own = info->si_code == SI_TKILL && info->si_pid == getpid();
	const struct line *line = own ? &gave_up : &was_sent;

	(void)context;
	if (poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT &&
	    write(STDERR_FILENO, line->text, line->bytes) < 0)
		ready.revents = 0; /* there is nowhere to say so */
	/* the signal is blocked until the handler returns; then its default action ends the
	 * process */
	raise(number);
}

void abort_line_begin(const char *program)
{
	struct sigaction action = {.sa_sigaction = on_abort, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};

	prepare(&gave_up, program,
		"%s aborts: libuv or libc could not go on, as happens without memory, threads, descriptors or "
		"epoll watches",
		program);
	prepare(&was_sent, program,
		"another process ends %s with SIGABRT, as the watchdog of a service manager does with a service "
		"that hangs",
		program);
	sigaction(SIGABRT, &action, NULL);
}
