#include "keeper_run.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLAGS_MAX 16

static char answer[200001];

void keeper_prepare(struct keeper *k)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memset(k, 0, sizeof *k);
	folder_make(&k->folder);
	snprintf(k->log, sizeof k->log, "%s/keeper.log", k->folder.dir);
	snprintf(k->control, sizeof k->control, "%s/control", k->folder.dir);
	k->service = -1;
	k->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, k->control);
	cr_assert(bind(k->listener, (struct sockaddr *)&address, sizeof address) == 0);
	cr_assert(listen(k->listener, 64) == 0);
}

static void run(const struct keeper *k, char *const *argv)
{
	char program[512];
	int log = open(k->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
	dup2(log, 1);
	dup2(log, 2);
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
	snprintf(program, sizeof program, "%s/bin/gpuwm-keeper", build_path());
	if (k->before_exec)
		k->before_exec();
	execv(program, argv);
	_exit(125);
}

void keeper_spawn(struct keeper *k, const char *const *flags, const char *const *command)
{
	const char *argv[2 * FLAGS_MAX + 8] = {"gpuwm-keeper", "--runtime-dir", k->folder.dir};
	char service[512];
	int count = 3;

	snprintf(service, sizeof service, "%s/tests/tools/notify-service", build_path());
	for (int i = 0; flags && flags[i]; i++)
		argv[count++] = flags[i];
	argv[count++] = "--";
	for (int i = 0; command && command[i]; i++)
		argv[count++] = command[i];
	if (!command) {
		argv[count++] = k->program[0] ? k->program : service;
		argv[count++] = k->control;
	}
	k->pid = fork();
	cr_assert(k->pid >= 0);
	if (k->pid == 0)
		run(k, (char *const *)argv);
}

void keeper_start(struct keeper *k, const char *flag, ...)
{
	const char *flags[FLAGS_MAX + 1] = {flag};
	va_list list;

	va_start(list, flag);
	for (int i = 1; flag && i < FLAGS_MAX && (flags[i] = va_arg(list, const char *)); i++)
		;
	va_end(list);
	keeper_prepare(k);
	keeper_spawn(k, flags, NULL);
	service_wait(k);
}

/* ---- the service ------------------------------------------------------ */

static void log_show(const struct keeper *k)
{
	FILE *file = fopen(k->log, "re");
	char line[1024];

	while (file && fgets(line, sizeof line, file))
		fputs(line, stderr);
	if (file)
		fclose(file);
}

static bool readable(int fd, int ms)
{
	return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms) == 1;
}

static void hear(struct keeper *k)
{
	ssize_t got;

	if (!readable(k->service, KEEPER_MS)) {
		log_show(k);
		cr_assert_fail("the service says nothing");
	}
	got = recv(k->service, answer, sizeof answer - 1, 0);
	if (got <= 0)
		log_show(k);
	cr_assert_gt(got, 0, "the service has ended");
	answer[got] = 0;
}

void service_wait(struct keeper *k)
{
	long long began;
	int pid, last = k->service;

	if (!readable(k->listener, KEEPER_MS)) {
		log_show(k);
		cr_assert_fail("the service is not started");
	}
	k->service = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC);
	close(last); /* not before: the service ends with its connection */
	hear(k);
	cr_assert_eq(sscanf(answer, "hello %d %lld %31s", &pid, &began, k->label), 3, "%s", answer);
	k->service_pid = pid;
	k->began_ns = began;
}

static void put(struct keeper *k, const char *format, va_list list)
{
	char text[8192];
	int length = vsnprintf(text, sizeof text, format, list);

	cr_assert(length > 0 && (size_t)length < sizeof text);
	cr_assert_eq(send(k->service, text, (size_t)length, MSG_NOSIGNAL), length);
}

void service_tell(struct keeper *k, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	put(k, format, list);
	va_end(list);
}

const char *service_ask(struct keeper *k, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	put(k, format, list);
	va_end(list);
	hear(k);
	return answer;
}

void service_crash(struct keeper *k)
{
	service_tell(k, "kill 9");
	service_wait(k);
}

void service_runs(struct keeper *k)
{
	service_ask(k, "hangups");
	cr_assert(!readable(k->listener, 0), "it was started again");
}

/* ---- the keeper ------------------------------------------------------- */

unsigned keeper_log_count(const struct keeper *k, const char *words)
{
	FILE *file = fopen(k->log, "re");
	char line[4096];
	unsigned count = 0;

	cr_assert(file, "no log");
	while (fgets(line, sizeof line, file))
		count += strstr(line, words) != NULL;
	fclose(file);
	return count;
}

int keeper_join(struct keeper *k)
{
	int status = 0;

	if (!EVENTUALLY(KEEPER_MS, waitpid(k->pid, &status, WNOHANG) == k->pid)) {
		log_show(k);
		cr_assert_fail("the keeper does not leave");
	}
	cr_assert(WIFEXITED(status), "the keeper ended with status %#x", status);
	k->pid = 0;
	return WEXITSTATUS(status);
}

void keeper_signal(const struct keeper *k, int number)
{
	cr_assert(kill(k->pid, number) == 0, "the keeper is gone");
}

static bool folder_left(const struct keeper *k)
{
	char command[256];

	snprintf(command, sizeof command, "ls -d %s/gpuwm-keeper-* >/dev/null 2>&1", k->folder.dir);
	return system(command) == 0;
}

void keeper_stop(struct keeper *k)
{
	cr_assert(folder_left(k), "where is its folder?");
	keeper_signal(k, SIGTERM);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert(!folder_left(k), "the folder of the notification socket is left");
	close(k->service);
	close(k->listener);
}

size_t keeper_children(const struct keeper *k)
{
	pid_t pids[CHILDREN_MAX];

	return loaders_of(k->pid, pids);
}
