#include "stack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_DOUBLINGS 6 /* from 1 ms to 64 */

int64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

void stack_pause(unsigned looks)
{
	poll(NULL, 0, looks < PAUSE_DOUBLINGS ? 1 << looks : 1 << PAUSE_DOUBLINGS);
}

static const char *build(void)
{
	return getenv("GPUWM_BUILD");
}

/* ---- making ----------------------------------------------------------- */

static bool control_make(struct stack *s)
{
	char path[64];
	int fd;
	void *page = MAP_FAILED;

	snprintf(path, sizeof path, "%s/control", s->dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && ftruncate(fd, sizeof(struct control)) == 0)
		page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	s->control = page == MAP_FAILED ? NULL : page;
	setenv(FAULTS_CONTROL, path, 1);
	return s->control;
}

static bool text_write(const struct stack *s, const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", s->dir, name);
	file = fopen(path, "we");
	return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

/* gpuwm-peer refuses one that others can read. */
static bool secret_write(const struct stack *s)
{
	char path[64];

	snprintf(path, sizeof path, "%s/secret", s->dir);
	return text_write(s, "secret", "a-secret-that-only-these-tests-have\n") && chmod(path, 0600) == 0;
}

static bool weights_write(const struct stack *s, unsigned content)
{
	static const char header[] =
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[64,64],\"data_offsets\":[0,16384]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[16384,20480]}}    ";
	const uint64_t bytes[] = {16384, 4096}, length = sizeof header - 1;
	char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/model.safetensors", stack_source(s, content));
	file = fopen(path, "we");
	if (!file)
		return false;
	fwrite(&length, 1, sizeof length, file);
	fwrite(header, 1, length, file);
	for (size_t tensor = 0; tensor < CONTENT_TENSORS; tensor++) {
		for (uint64_t at = 0; at < bytes[tensor]; at++)
			putc(content_byte(content, tensor, at), file);
	}
	return fclose(file) == 0;
}

static bool checkpoints_write(const struct stack *s)
{
	char name[32];

	for (unsigned content = CONTENT_ONE; content <= CONTENT_TWO; content++) {
		snprintf(name, sizeof name, "models/%u/config.json", content);
		if (mkdir(stack_source(s, content), 0755) < 0 || !text_write(s, name, "{\"layers\": 2}") ||
		    !weights_write(s, content))
			return false;
	}
	return true;
}

bool stack_make(struct stack *s)
{
	char models[64], conf[1024];

	memset(s, 0, sizeof *s);
	snprintf(s->dir, sizeof s->dir, "/tmp/gpuwm-faults-XXXXXX");
	if (!mkdtemp(s->dir)) {
		perror(s->dir);
		return false;
	}
	snprintf(s->socket, sizeof s->socket, "%s/gpuwm.sock", s->dir);
	snprintf(s->log, sizeof s->log, "%s/log", s->dir);
	snprintf(models, sizeof models, "%s/models", s->dir);
	/* Short times: the rounds are many. */
	snprintf(conf, sizeof conf,
		 "[limits]\ngrace_ms = 100\n[loader]\npath = %s/bin/gpuwm-loader\nroot = %s\n"
		 "[peers]\nsecret = %s/secret\nlisten = 127.0.0.1:0\n",
		 build(), models, s->dir);
	if (mkdir(models, 0755) == 0 && control_make(s) && text_write(s, "gpuwmd.conf", conf) &&
	    text_write(s, "log", "") && text_write(s, "output", "") && text_write(s, "heard", "") &&
	    secret_write(s) && checkpoints_write(s))
		return true;
	perror(s->dir);
	return false;
}

/* Calls `each` for every child of the process. */
static void children_each(pid_t pid, void (*each)(pid_t child, void *user_data), void *user_data)
{
	char path[64];
	FILE *file;
	int child;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	file = fopen(path, "re");
	while (file && fscanf(file, "%d", &child) == 1)
		each(child, user_data);
	if (file)
		fclose(file);
}

static void child_count(pid_t child, void *user_data)
{
	(void)child;
	++*(unsigned *)user_data;
}

static void child_kill(pid_t child, void *user_data)
{
	(void)user_data;
	kill(child, SIGKILL);
}

static int entry_remove(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat, (void)type, (void)ftw;
	return remove(path);
}

/* A program beside the stack is no keeper's child, and may hang. What a program leaves when it ends becomes a child of this process. */
static void children_end(void)
{
	do {
		children_each(getpid(), child_kill, NULL);
	} while (waitpid(-1, NULL, 0) > 0);
}

void stack_remove(struct stack *s)
{
	children_end();
	nftw(s->dir, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- running ---------------------------------------------------------- */

void stack_child(const struct stack *s, int output)
{
	const char *before = getenv("LD_PRELOAD");
	char preload[1024];
	int log = open(s->log, O_WRONLY | O_APPEND | O_CLOEXEC);

	snprintf(preload, sizeof preload, "%s/tests/preload/fail-call.so%s%s", build(), before ? ":" : "",
		 before ? before : "");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
	dup2(output < 0 ? log : output, 1);
	dup2(log, 2);
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
	setenv("LD_PRELOAD", preload, 1);
}

static _Noreturn void run(const struct stack *s)
{
	char keeper[512], gpuwmd[512], conf[64];

	snprintf(keeper, sizeof keeper, "%s/bin/gpuwm-keeper", build());
	snprintf(gpuwmd, sizeof gpuwmd, "%s/bin/gpuwmd", build());
	snprintf(conf, sizeof conf, "%s/gpuwmd.conf", s->dir);
	stack_child(s, -1);
	execl(keeper, keeper, "--restart-delay", "0", "--runtime-dir", s->dir, "--", gpuwmd, "--config", conf,
	      "--socket", s->socket, NULL);
	_exit(127);
}

void stack_spawn(struct stack *s)
{
	s->filled = false;
	s->keeper = fork();
	if (s->keeper == 0)
		run(s);
}

bool stack_ended(struct stack *s)
{
	if (s->keeper > 0 && waitpid(s->keeper, &s->status, WNOHANG) != s->keeper)
		return false;
	s->keeper = 0;
	return true;
}

unsigned stack_strays(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return process_children(getpid());
}

static int client_make(const struct stack *s, unsigned flags, struct gpuwm_client **ret)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = s->socket;
	options.name = "faults";
	options.restart_ms = RESTART_MS;
	options.flags = flags;
	return gpuwm_connect(&options, ret);
}

int stack_operator(const struct stack *s, struct gpuwm_client **ret)
{
	return client_make(s, GPUWM_CONNECT_ADMIN | GPUWM_CONNECT_ONCE, ret);
}

int stack_worker(const struct stack *s, struct gpuwm_client **ret)
{
	return client_make(s, 0, ret);
}

/* ---- files and bytes -------------------------------------------------- */

const struct gpuwm_tensor_spec content_specs[CONTENT_TENSORS] = {
	{.name = "a", .dtype = GPUWM_F32, .ndim = 2, .shape = (const uint64_t[]){64, 64}},
	{.name = "b", .dtype = GPUWM_U8, .ndim = 1, .shape = (const uint64_t[]){4096}},
};

const char *stack_source(const struct stack *s, unsigned content)
{
	static char path[64];

	snprintf(path, sizeof path, "%s/models/%u", s->dir, content);
	return path;
}

uint8_t content_byte(unsigned content, size_t tensor, uint64_t at)
{
	return (uint8_t)(content * 31 + tensor * 17 + at * 7 + (at >> 8));
}

bool content_is(const struct gpuwm_mapping *mapping, unsigned content)
{
	static uint8_t bytes[16384];
	struct gpuwm_tensor tensor;

	for (size_t i = 0; i < CONTENT_TENSORS; i++) {
		if (gpuwm_tensor_find(mapping, content_specs[i].name, &tensor) < 0 ||
		    tensor.bytes > sizeof bytes ||
		    gpuwm_tensor_read(mapping, &tensor, 0, bytes, tensor.bytes) < 0)
			return false;
		for (uint64_t at = 0; at < tensor.bytes; at++) {
			if (bytes[at] != content_byte(content, i, at))
				return false;
		}
	}
	return gpuwm_tensor_count(mapping) == CONTENT_TENSORS;
}

/* ---- looking ---------------------------------------------------------- */

char *stack_said(const struct stack *s)
{
	FILE *file = fopen(s->log, "re");
	char *text = NULL;
	size_t size = 0, bytes;

	if (file && fseek(file, 0, SEEK_END) == 0) {
		size = (size_t)(ftell(file) - s->log_from);
		fseek(file, s->log_from, SEEK_SET);
	}
	text = calloc(1, size + 1);
	bytes = text && file ? fread(text, 1, size, file) : 0;
	if (text)
		text[bytes] = '\0';
	if (file)
		fclose(file);
	return text;
}

size_t process_fds(pid_t pid)
{
	char path[64];
	size_t count = 0;
	DIR *folder;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		count += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return count;
}

unsigned process_children(pid_t pid)
{
	unsigned count = 0;

	children_each(pid, child_count, &count);
	return count;
}

static unsigned files_seen;

static int entry_count(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)path, (void)stat, (void)type, (void)ftw;
	files_seen++;
	return 0;
}

unsigned stack_files(const struct stack *s)
{
	files_seen = 0;
	nftw(s->dir, entry_count, 16, FTW_PHYS);
	return files_seen;
}
