#include "program.h"

#include "../../../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define END_MS 1000 /* for a killed process to be gone */

int64_t program_limit(int64_t limit_ms)
{
	const char *text = getenv("GPUWM_DOCTOR_LIMIT_MS");
	int64_t given = text ? strtoll(text, NULL, 10) : 0;

	return given > 0 && given < limit_ms ? given : limit_ms;
}

int program_read(int fd, int64_t limit_ms, char *ret_text, size_t size)
{
	const int64_t deadline = clock_deadline(limit_ms);
	size_t length = 0;
	char more[4096];

	for (;;) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		int left = clock_left(deadline);
		ssize_t got;

		ret_text[length] = '\0';
		if (left == 0)
			return -ETIMEDOUT;
		if (poll(&wait, 1, left) <= 0)
			continue;
		got = read(fd, more, sizeof(more));
		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got > 0 && (size_t)got > size - 1 - length)
			got = (ssize_t)(size - 1 - length);
		if (got > 0) {
			memcpy(ret_text + length, more, (size_t)got);
			length += (size_t)got;
		}
	}
}

void program_end(pid_t pid, bool kill_it, int *ret_status)
{
	const int64_t deadline = clock_deadline(END_MS);

	*ret_status = SIGKILL;
	if (kill_it) {
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL); /* it may have had no group yet */
	}
	while (waitpid(pid, ret_status, WNOHANG) == 0 && clock_left(deadline) > 0)
		poll(NULL, 0, 1);
}

/* ---- the environment of what is run ---- */

/* Variables that are about gpuwmctl: its user, or the service that it runs in, has set them. The programs that it runs would take
 * them for their own. */
static const char *const about_gpuwmctl[] = {
	"GPUWM_SOCKET", /* where gpuwmctl connects; gpuwmd would serve there, whatever its file says */
	"STATE_DIRECTORY", /* gpuwmd would have its descriptions there */
	"NOTIFY_SOCKET",
	"SYSTEMD_LOG_LEVEL", /* systemctl and journalctl would print more than gpuwmctl reads */
	"SYSTEMD_COLORS",
};

static bool is_variable(const char *entry, const char *name)
{
	const size_t length = strlen(name);

	return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* Returns this process's environment without those, and without `other` unless that is NULL: an array for free(3), whose texts stay
 * where they are. NULL: there is no memory for it. */
static char **environment_make(const char *other)
{
	size_t count = 0, kept = 0;
	char **variables;

	while (environ[count])
		count++;
	variables = malloc((count + 1) * sizeof(*variables));
	for (size_t i = 0; variables && i < count; i++) {
		bool passed = !other || !is_variable(environ[i], other);

		for (size_t j = 0; passed && j < sizeof(about_gpuwmctl) / sizeof(about_gpuwmctl[0]); j++)
			passed = !is_variable(environ[i], about_gpuwmctl[j]);
		if (passed)
			variables[kept++] = environ[i];
	}
	if (variables)
		variables[kept] = NULL;
	return variables;
}

/* ---- running ---- */

static int spawn(const char *without, const char *const *words, bool errors, int to, pid_t *ret_pid)
{
	char **environment = environment_make(without);
	posix_spawn_file_actions_t actions;
	int r = environment ? posix_spawn_file_actions_init(&actions) : ENOMEM;

	if (r != 0) {
		free(environment);
		return -r;
	}
	r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
	if (r == 0)
		r = errors ? posix_spawn_file_actions_adddup2(&actions, to, STDERR_FILENO)
			   : posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
							      0);
	if (r == 0)
		r = posix_spawnp(ret_pid, words[0], &actions, NULL, (char *const *)words, environment);
	posix_spawn_file_actions_destroy(&actions);
	free(environment);
	return -r;
}

int program_run_without(const char *variable, const char *const *words, int64_t limit_ms, bool errors,
			char *ret_text, size_t size)
{
	int pipes[2], status, r;
	pid_t pid;

	ret_text[0] = '\0';
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	r = spawn(variable, words, errors, pipes[1], &pid);
	close(pipes[1]);
	if (r == 0) {
		r = program_read(pipes[0], limit_ms, ret_text, size);
		program_end(pid, r < 0, &status);
	}
	close(pipes[0]);
	return r < 0 ? r : status;
}

int program_run(const char *const *words, int64_t limit_ms, bool errors, char *ret_text, size_t size)
{
	return program_run_without(NULL, words, limit_ms, errors, ret_text, size);
}

bool program_find(const char *name, char *ret_path, size_t size)
{
	static const char *const places[] = {"../libexec/gpuwm/", ""};
	char folder[2048];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	char *slash;

	folder[length < 0 ? 0 : length] = '\0';
	slash = strrchr(folder, '/');
	if (slash)
		slash[1] = '\0';
	for (int i = 1; i >= 0; i--) {
		snprintf(ret_path, size, "%s%s%s", folder, places[i], name);
		if (access(ret_path, X_OK) == 0)
			return true;
	}
	return false;
}
