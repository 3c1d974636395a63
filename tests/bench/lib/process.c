#include "process.h"

#include "../bench.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LOADERS_SEEN_MAX 256
#define LOOK_US 4000

struct loaders {
	pthread_t thread;
	pid_t gpuwmd;
	bool end; /* atomic */
	struct {
		pid_t pid;
		struct usage first, last;
	} seen[LOADERS_SEEN_MAX];
	size_t count;
};

void child_run(void (*fn)(void *data, void *result), void *data, void *result, size_t bytes)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	if (shared == MAP_FAILED)
		DIE("out of memory");
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		fn(data, shared);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		DIE("a measuring child failed");
	memcpy(result, shared, bytes);
	munmap(shared, bytes);
}

int command_run(const char *const argv[])
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == 127)
		DIE("%s could not be run", argv[0]);
	return WEXITSTATUS(status);
}

static size_t read_proc(pid_t pid, const char *name, char *text, size_t bytes)
{
	char path[64];
	FILE *file;
	size_t n;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	file = fopen(path, "re");
	n = file ? fread(text, 1, bytes - 1, file) : 0;
	text[n] = 0;
	if (file)
		fclose(file);
	return n;
}

bool usage_of(pid_t pid, struct usage *ret)
{
	char stat[1024], status[4096];
	unsigned long long user, system;
	const char *end, *peak;

	if (!read_proc(pid, "stat", stat, sizeof stat) || !read_proc(pid, "status", status, sizeof status))
		return false;
	end = strrchr(stat, ')');
	peak = strstr(status, "VmHWM:");
	/* One that ends has no memory any more. */
	if (!end || !peak ||
	    sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
		return false;
	ret->cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
	ret->peak_bytes = strtoull(peak + strlen("VmHWM:"), NULL, 10) << 10;
	return true;
}

static bool is_loader(pid_t pid)
{
	char name[32];

	return read_proc(pid, "comm", name, sizeof name) && strcmp(name, "gpuwm-loader\n") == 0;
}

static size_t loaders_of(pid_t gpuwmd, pid_t *pids, size_t max)
{
	char name[64], children[4096], *next = children;
	size_t count = 0;
	pid_t pid;

	snprintf(name, sizeof name, "task/%d/children", (int)gpuwmd);
	read_proc(gpuwmd, name, children, sizeof children);
	while (count < max && (pid = (pid_t)strtol(next, &next, 10)) > 0)
		if (is_loader(pid))
			pids[count++] = pid;
	return count;
}

static void look(struct loaders *l, pid_t pid)
{
	struct usage usage;
	size_t i = 0;

	if (!usage_of(pid, &usage))
		return;
	while (i < l->count && l->seen[i].pid != pid)
		i++;
	if (i == LOADERS_SEEN_MAX)
		return;
	if (i == l->count) {
		l->seen[l->count].pid = pid;
		l->seen[l->count++].first = usage;
	}
	l->seen[i].last = usage;
}

static void *watch(void *data)
{
	struct loaders *l = data;

	while (!__atomic_load_n(&l->end, __ATOMIC_ACQUIRE)) {
		pid_t pids[64];
		size_t count = loaders_of(l->gpuwmd, pids, 64);

		for (size_t i = 0; i < count; i++)
			look(l, pids[i]);
		usleep(LOOK_US);
	}
	return NULL;
}

struct loaders *loaders_watch(pid_t gpuwmd)
{
	struct loaders *l = calloc(1, sizeof *l);

	if (!l)
		DIE("out of memory");
	l->gpuwmd = gpuwmd;
	if (pthread_create(&l->thread, NULL, watch, l) != 0)
		DIE("no thread");
	return l;
}

struct usage loaders_seen(struct loaders *l)
{
	struct usage most = {.cpu_s = -1};

	__atomic_store_n(&l->end, true, __ATOMIC_RELEASE);
	pthread_join(l->thread, NULL);
	for (size_t i = 0; i < l->count; i++) {
		struct usage usage = l->seen[i].last;

		usage.cpu_s -= l->seen[i].first.cpu_s;
		if (usage.cpu_s > most.cpu_s)
			most = usage;
	}
	free(l);
	return most;
}

void loaders_kill(pid_t gpuwmd)
{
	pid_t pids[64];
	size_t count = loaders_of(gpuwmd, pids, 64);

	for (size_t i = 0; i < count; i++)
		kill(pids[i], SIGKILL);
	/* Gone when gpuwmd has heard of it. */
	for (size_t i = 0; i < count; i++)
		while (kill(pids[i], 0) == 0)
			sched_yield();
}
