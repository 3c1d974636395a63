#include "child.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		/* This fails for SIGKILL, SIGSTOP and libc's own signals. */
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The numbers of stored descriptors are higher than any place here: see store.h. */
static int place_fds(const struct store *store)
{
	for (size_t i = 0; i < store->count; i++) {
		if (dup2(store->entries[i].fd, STORE_FD_FIRST + (int)i) < 0)
			return -errno;
	}
	return 0;
}

static _Noreturn void child_run(char *const *command, struct environment *environment,
				const struct store *store, pid_t parent)
{
	int r;

	/* SIGKILL and not SIGTERM: otherwise a program that hangs would outlive the keeper. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CHILD_NOT_RUN); /* The keeper died before prctl took effect. */
	setsid();
	environment_set_pid(environment, getpid());
	r = place_fds(store);
	if (r == 0) {
		reset_signals();
		execvpe(command[0], command, environment->variables);
		r = -errno;
	}
	log_error("%s can't be run: %s", command[0], strerror(-r));
	_exit(r == -ENOENT ? CHILD_NOT_FOUND : CHILD_NOT_RUN);
}

pid_t child_start(char *const *command, struct environment *environment, const struct store *store)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0)
		child_run(command, environment, store, parent);
	return pid < 0 ? -errno : pid;
}
