#include "hook.h"
#include "../base/grow.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NO_INPUT 126
#define EXIT_NO_SHELL 127

void hook_want(struct hook *hook, char *list)
{
	free(hook->wanted);
	hook->wanted = list;
}

static bool hook_is_wanted(const struct hook *hook)
{
	return hook->command && hook->wanted && !(hook->given && strcmp(hook->wanted, hook->given) == 0);
}

uint64_t hook_due_ms(const struct hook *hook)
{
	return hook->pid || hook_is_wanted(hook) ? hook->due_ms : UINT64_MAX;
}

/* A file with the list, from its beginning. */
static int make_input(const char *list)
{
	int fd = memfd_create("gpuwm-follow list", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (file_write_all(fd, list, strlen(list)) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

/* In the child. Its process group is its own, so that all that it starts can be killed. */
static void hook_run(const char *command, int input)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0);
	if (dup2(input, STDIN_FILENO) < 0)
		_exit(EXIT_NO_INPUT); /* a command that reads an empty list would succeed */
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(EXIT_NO_SHELL);
}

static void fail(struct hook *hook, uint64_t now_ms)
{
	free(hook->given);
	hook->given = NULL;
	hook->due_ms = now_ms + hook->retry_ms;
}

static void hook_begin(struct hook *hook, uint64_t now_ms)
{
	int input = make_input(hook->wanted);
	char *given = strdup(hook->wanted);
	pid_t pid = input >= 0 && given ? fork() : -1;

	if (pid == 0)
		hook_run(hook->command, input);
	if (input >= 0)
		close(input);
	free(hook->given);
	hook->given = given;
	if (pid < 0) {
		log_trouble(&hook->trouble, "the hook can't be started: %s", strerror(errno));
		fail(hook, now_ms);
		return;
	}
	setpgid(pid, pid); /* here too: whichever process comes first */
	hook->pid = pid;
	hook->killed = false;
	hook->due_ms = now_ms + hook->timeout_ms;
}

void hook_go_on(struct hook *hook, uint64_t now_ms)
{
	if (hook->pid && !hook->killed && now_ms >= hook->due_ms) {
		kill(-hook->pid, SIGKILL);
		hook->killed = true;
		hook->due_ms = UINT64_MAX;
	}
	if (!hook->pid && hook_is_wanted(hook) && now_ms >= hook->due_ms)
		hook_begin(hook, now_ms);
}

static void hook_judge(struct hook *hook, int status, uint64_t now_ms)
{
	const unsigned long long retry = hook->retry_ms, timeout = hook->timeout_ms;

	hook->due_ms = now_ms;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		log_trouble_over(&hook->trouble, "the hook succeeds again");
		return;
	}
	if (hook->killed)
		log_trouble(&hook->trouble,
			    "the hook was killed after %llu ms (--exec-timeout); the next run is in %llu ms",
			    timeout, retry);
	else if (WIFEXITED(status))
		log_trouble(&hook->trouble, "the hook ended with status %d; the next run is in %llu ms",
			    WEXITSTATUS(status), retry);
	else
		log_trouble(&hook->trouble, "signal %d ended the hook; the next run is in %llu ms",
			    WTERMSIG(status), retry);
	fail(hook, now_ms);
}

void hook_reap(struct hook *hook, uint64_t now_ms)
{
	int status;

	if (!hook->pid || waitpid(hook->pid, &status, WNOHANG) != hook->pid)
		return;
	hook->pid = 0;
	hook_judge(hook, status, now_ms);
}

void hook_end(struct hook *hook)
{
	if (hook->pid) {
		kill(-hook->pid, SIGKILL);
		waitpid(hook->pid, NULL, 0);
		hook->pid = 0;
	}
	free(hook->wanted);
	free(hook->given);
	hook->wanted = hook->given = NULL;
}
