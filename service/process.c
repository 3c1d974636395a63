#include "process.h"

#include "log.h"
#include "../base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- its begin ---- */

int streams_open(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0 ||
					       fcntl(STDERR_FILENO, F_GETFD) < 0
				       ? -errno
				       : 0;
		if (fd <= STDERR_FILENO)
			fcntl(fd, F_SETFD, 0);
	} while (fd <= STDERR_FILENO);
	close(fd);
	return 0;
}

int privacy_begin(void)
{
	return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}

/* ---- its abort ---- */

/* The lines are written beforehand, since a signal handler must not format text. */
struct abort_line {
	char text[512];
	size_t bytes;
};

static struct abort_line gave_up, was_sent;

__attribute__((format(printf, 2, 3))) static void abort_line_prepare(struct abort_line *line,
								     const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	line->bytes = log_line(line->text, sizeof(line->text), LOG_LEVEL_ERROR, format, arguments);
	va_end(arguments);
}

static void on_abort(int number, siginfo_t *info, void *context)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	bool own = info->si_code == SI_TKILL && info->si_pid == getpid();
	const struct abort_line *line = own ? &gave_up : &was_sent;

	(void)context;
	if (poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT &&
	    write(STDERR_FILENO, line->text, line->bytes) < 0)
		ready.revents = 0; /* there is nowhere to say so */
	/* the signal is blocked until the handler returns; then its default action ends the
	 * process */
	raise(number);
}

void abort_line_begin(void)
{
	struct sigaction action = {.sa_sigaction = on_abort, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};

	abort_line_prepare(
		&gave_up,
		"%s aborts: libuv or libc could not go on, as happens without memory, threads, descriptors or "
		"epoll watches",
		log_program());
	abort_line_prepare(
		&was_sent,
		"another process ends %s with SIGABRT, as the watchdog of a service manager does with a service "
		"that hangs",
		log_program());
	sigaction(SIGABRT, &action, NULL);
}

/* ---- its file ---- */

bool own_program_is_gone(char *ret_path, size_t size)
{
	static const char mark[] = " (deleted)"; /* the kernel's, behind the name of such a file */
	ssize_t bytes = readlink("/proc/self/exe", ret_path, size - 1);
	char *end;
	bool is_gone;

	ret_path[bytes > 0 ? bytes : 0] = '\0';
	if (bytes < (ssize_t)sizeof(mark))
		return false;
	end = ret_path + bytes - (sizeof(mark) - 1);
	is_gone = strcmp(end, mark) == 0;
	if (is_gone)
		*end = '\0';
	return is_gone;
}

/* ---- its limits ---- */

struct texts {
	char *end;
	size_t left;
};

__attribute__((format(printf, 2, 3))) static void texts_add(struct texts *texts, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(texts->end, texts->left, format, arguments);
	va_end(arguments);
	if (n > 0 && (size_t)n < texts->left) {
		texts->end += n;
		texts->left -= (size_t)n;
	}
}

/* The line "0::/system.slice/gpuwmd.service" names the cgroup (of cgroups version 2). */
static void texts_add_cgroup(struct texts *texts)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[512], path[600] = "", most[32] = "";

	while (file && !path[0] && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/pids.max", line + 3);
	}
	if (file)
		fclose(file);
	file = path[0] ? fopen(path, "re") : NULL;
	if (!file)
		return;
	if (fgets(most, sizeof(most), file) && strncmp(most, "max", 3) != 0)
		texts_add(texts, "%s is %.*s processes and threads; ", path, (int)strcspn(most, "\n"), most);
	fclose(file);
}

void task_limits_explain(char *ret_text, size_t size)
{
	struct texts texts = {ret_text, size};
	char bytes[BYTES_TEXT];
	struct rlimit limit;

	ret_text[0] = '\0';
	if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		texts_add(&texts, "RLIMIT_NPROC is %llu processes and threads of the user; ",
			  (unsigned long long)limit.rlim_cur);
	texts_add_cgroup(&texts);
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		texts_add(&texts, "RLIMIT_AS is %s of address space; ", bytes_format(limit.rlim_cur, bytes));
	texts_add(&texts,
		  "raise RLIMIT_NPROC (ulimit -u, LimitNPROC=), pids.max (TasksMax=, docker run --pids-limit) "
		  "or RLIMIT_AS (ulimit -v, LimitAS=)");
}
