#include "child.h"
#include "../service/log.h"
#include "../service/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PID_BYTES 12 /* a pid_t and its terminating zero */
#define OURS_MAX 9

/* Variables of whoever started the keeper that would tell the program wrong things. */
static const char *const removed[] = {
	"NOTIFY_SOCKET=",        "FDSTORE=",       "LISTEN_FDS=",   "LISTEN_PID=", "LISTEN_PIDFDID=",
	"LISTEN_FDNAMES=",       "WATCHDOG_USEC=", "WATCHDOG_PID=", "MAINPID=",    STORE_ANSWER_VARIABLE "=",
	STORE_ADOPT_VARIABLE "="};

static bool is_removed(const char *variable)
{
	for (size_t i = 0; i < sizeof(removed) / sizeof(removed[0]); i++) {
		if (strncmp(variable, removed[i], strlen(removed[i])) == 0)
			return true;
	}
	return false;
}

static char *put_names(char *text, const struct store *store)
{
	char *end = stpcpy(text, "LISTEN_FDNAMES=");

	for (size_t i = 0; i < store->count; i++) {
		if (i > 0)
			*end++ = ':';
		end = stpcpy(end, store->entries[i].name);
	}
	return end + 1;
}

/* Writes the texts one behind the other into e->texts, which has room for them. */
static void put_ours(struct environment *e, char **next, const char *notify_socket, const struct store *store,
		     uint64_t watchdog_us, bool adopt)
{
	char *text = e->texts;

#define PUT(...) (*next++ = text, text += sprintf(text, __VA_ARGS__) + 1)
	PUT("NOTIFY_SOCKET=%s", notify_socket);
	PUT(STORE_ANSWER_VARIABLE "=1");
	if (adopt)
		PUT(STORE_ADOPT_VARIABLE "=1");
	if (store->max > 0)
		PUT("FDSTORE=%zu", store->max);
	if (store->count > 0) {
		PUT("LISTEN_FDS=%zu", store->count);
		*next++ = text;
		text = put_names(text, store);
		e->listen_pid = text + strlen("LISTEN_PID=");
		PUT("LISTEN_PID=");
		text += PID_BYTES;
	}
	if (watchdog_us > 0) {
		PUT("WATCHDOG_USEC=%llu", (unsigned long long)watchdog_us);
		e->watchdog_pid = text + strlen("WATCHDOG_PID=");
		PUT("WATCHDOG_PID=");
	}
#undef PUT
	*next = NULL;
}

int environment_make(struct environment *ret, char *const *base, const char *notify_socket,
		     const struct store *store, uint64_t watchdog_us, bool adopt)
{
	/* Each of the keeper's variables but those two has at most 64 bytes. */
	size_t bytes = OURS_MAX * 64 + strlen(notify_socket) + store->name_bytes, count = 0, kept = 0;
	struct environment e = {0};

	while (base[count])
		count++;
	e.variables = calloc(count + OURS_MAX + 1, sizeof(*e.variables));
	e.texts = malloc(bytes);
	if (!e.variables || !e.texts) {
		environment_clear(&e);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		if (!is_removed(base[i]))
			e.variables[kept++] = base[i];
	}
	put_ours(&e, e.variables + kept, notify_socket, store, watchdog_us, adopt);
	*ret = e;
	return 0;
}

void environment_set_pid(struct environment *environment, pid_t pid)
{
	if (environment->listen_pid)
		snprintf(environment->listen_pid, PID_BYTES, "%d", (int)pid);
	if (environment->watchdog_pid)
		snprintf(environment->watchdog_pid, PID_BYTES, "%d", (int)pid);
}

void environment_clear(struct environment *environment)
{
	free(environment->variables);
	free(environment->texts);
	*environment = (struct environment){0};
}

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		/* This fails for SIGKILL, SIGSTOP and libc's own signals. */
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void child_run(char *const *command, struct environment *environment,
				const struct store *store, pid_t parent)
{
	int r = 0;

	/* SIGKILL and not SIGTERM: otherwise a program that hangs would outlive the keeper. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CHILD_NOT_RUN); /* The keeper died before prctl took effect. */
	setsid();
	environment_set_pid(environment, getpid());
	/* The numbers of stored descriptors are higher than any place here: see store.h. */
	for (size_t i = 0; r == 0 && i < store->count; i++)
		r = dup2(store->entries[i].fd, STORE_FD_FIRST + (int)i) < 0 ? -errno : 0;
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

uint64_t restart_delay(struct restart *restart, uint64_t ready_ms)
{
	uint64_t delay;

	if (ready_ms > restart->max_ms)
		restart_reset(restart);
	delay = restart->next_ms < restart->max_ms ? restart->next_ms : restart->max_ms;
	restart->next_ms = delay == 0 ? RESTART_DELAY_MS : delay * 2;
	return delay;
}

void restart_reset(struct restart *restart)
{
	restart->next_ms = 0;
}
