/* What another process of the same user can do to gpuwm's services. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(privacy);

#define NOBODY 65534

static void become_nobody(void)
{
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static bool can_list_descriptors(pid_t pid)
{
	char path[64];
	DIR *folder;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	if (folder)
		closedir(folder);
	return folder;
}

static bool can_open_memory(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool can_take_descriptor(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), fd = (int)syscall(SYS_pidfd_getfd, pidfd, 0, 0);

	CHILD_ASSERT(pidfd >= 0);
	close(pidfd);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool can_trace(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
		return false;
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return true;
}

/* argv: processes of that user; the first is an ordinary one, to see that the others' protection is their own. */
static int neighbour(int argc, char **argv)
{
	become_nobody();
	CHILD_ASSERT(argc > 1 && can_list_descriptors(atoi(argv[0])));
	for (int i = 1; i < argc; i++) {
		pid_t pid = atoi(argv[i]);

		CHILD_ASSERT(kill(pid, 0) == 0); /* it is the same user's */
		CHILD_ASSERT(!can_list_descriptors(pid));
		CHILD_ASSERT(!can_open_memory(pid));
		CHILD_ASSERT(!can_take_descriptor(pid));
		CHILD_ASSERT(!can_trace(pid));
	}
	return 0;
}

static int oom_score_adj_of(pid_t pid)
{
	char path[64];
	FILE *file;
	int has = 0;

	snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
	file = fopen(path, "re");
	cr_assert(file && fscanf(file, "%d", &has) == 1);
	fclose(file);
	return has;
}

static pid_t start_as_nobody(const char *const *words, const char *log)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	become_nobody();
	dup2(open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
	execv(words[0], (char *const *)words);
	_exit(125);
}

/* gpuwm-keeper with its gpuwmd and that one's standby loader: their pids. */
static pid_t services_start(struct gpuwmd *d, pid_t *ret_daemon, pid_t *ret_loader)
{
	char keeper[512], daemon[512], loader[512];
	const char *words[] = {
		keeper,           "--runtime-dir", d->dir,   "--",    daemon,     "--socket", d->socket,
		"--admin-socket", d->admin_socket, "--root", d->root, "--loader", loader,     NULL};
	pid_t pid;

	cr_assert(chown(d->dir, NOBODY, NOBODY) == 0);
	snprintf(keeper, sizeof keeper, "%s/bin/gpuwm-keeper", build_path());
	snprintf(daemon, sizeof daemon, "%s/bin/gpuwmd", build_path());
	snprintf(loader, sizeof loader, "%s/bin/gpuwm-loader", build_path());
	pid = start_as_nobody(words, d->log);
	cr_assert(EVENTUALLY(SOON_MS, children_of(pid, ret_daemon, 1) == 1));
	cr_assert(EVENTUALLY(SOON_MS, children_of(*ret_daemon, ret_loader, 1) == 1));
	return pid;
}

Test(privacy, no_process_of_the_same_user_looks_into_the_services)
{
	static const char *const sleep[] = {"/bin/sleep", "1000", NULL};
	pid_t keeper, daemon, loader, ordinary;
	char pids[4][16];
	struct process other;
	struct gpuwmd d;

	NEEDS_ROOT();
	SKIP_UNLESS(build_is_open_to(NOBODY), "another user can't reach the programs here");
	folder_make(&d);
	keeper = services_start(&d, &daemon, &loader);
	ordinary = start_as_nobody(sleep, "/dev/null");
	cr_assert(EVENTUALLY(SOON_MS, access(d.admin_socket, F_OK) == 0));
	d.admin = admin_new();
	/* When gpuwmd knows its loader, each of them has done what main does first. */
	cr_assert(EVENTUALLY(SOON_MS, status_of(&d, "standby") == 1));
	gpuwm_close(d.admin);
	/* An ordinary user can't write to this file of a process that is protected already. */
	cr_expect_eq(oom_score_adj_of(loader), 500);
	cr_expect_eq(oom_score_adj_of(daemon), oom_score_adj_of(getpid()));
	snprintf(pids[0], sizeof pids[0], "%d", (int)ordinary);
	snprintf(pids[1], sizeof pids[1], "%d", (int)keeper);
	snprintf(pids[2], sizeof pids[2], "%d", (int)daemon);
	snprintf(pids[3], sizeof pids[3], "%d", (int)loader);
	other = process_start(neighbour, pids[0], pids[1], pids[2], pids[3], NULL);
	process_finish(&other);
	kill(ordinary, SIGKILL);
	kill(keeper, SIGTERM);
	cr_assert(waitpid(ordinary, NULL, 0) == ordinary && waitpid(keeper, NULL, 0) == keeper);
}

static int nice_of(pid_t pid)
{
	errno = 0;
	return getpriority(PRIO_PROCESS, (id_t)pid);
}

GPUWMD_TEST_IF(privacy, gpuwmd_runs_ahead_of_those_it_serves_and_loaders_do_not,
	       SKIP_UNLESS(geteuid() == 0 && nice_of(0) == 0, "only root may raise itself"), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	pid_t loaders[CHILDREN_MAX];

	cr_expect_lt(nice_of(d->pid), 0);
	cr_assert(EVENTUALLY(SOON_MS, loaders_of(d->pid, loaders) > 0 && nice_of(loaders[0]) == 0));
}

static struct gpuwmd *start_with_oom_score_adj(int value)
{
	const int own = oom_score_adj_of(getpid());
	FILE *file = fopen("/proc/self/oom_score_adj", "we");
	struct gpuwmd *d;

	cr_assert(file && fprintf(file, "%d", value) > 0 && fflush(file) == 0);
	d = gpuwmd_start(NULL);
	rewind(file);
	cr_assert(fprintf(file, "%d", own) > 0 && fclose(file) == 0);
	return d;
}

GPUWMD_TEST_IF(privacy, a_loader_keeps_a_higher_oom_score_adj,
	       SKIP_UNLESS(geteuid() == 0, "only root may lower its own again"), start_with_oom_score_adj(700),
	       gpuwmd_stop_empty)
{
	pid_t loaders[CHILDREN_MAX];

	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "standby") == 1));
	cr_assert_gt(loaders_of(d->pid, loaders), 0);
	cr_expect_eq(oom_score_adj_of(d->pid), 700);
	cr_expect_eq(oom_score_adj_of(loaders[0]), 700);
}
