#include "kept.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEXT_MS 20000

/* ---- starting --------------------------------------------------------- */

void kept_configure(const struct gpuwmd *d, const struct kept *how)
{
	char path[128], loader[512];
	FILE *file;

	snprintf(path, sizeof path, "%s/gpuwmd.conf", d->dir);
	snprintf(loader, sizeof loader, "%s/bin/gpuwm-loader", build_path());
	file = fopen(path, "we");
	cr_assert(file);
	fprintf(file, "[limits]\n%s[loader]\npath = %s\n", how->limits ? how->limits : LIMITS_SHORT,
		how->loader ? how->loader : loader);
	cr_assert(fclose(file) == 0);
}

void kept_act(const struct gpuwmd *d, const char *lines)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/acts", d->dir);
	file = fopen(path, "we");
	cr_assert(file && fputs(lines, file) >= 0 && fclose(file) == 0);
}

static void spawn(struct gpuwmd *d, const struct kept *how)
{
	char keeper[512], acting[512], acts[128], conf[128], fdstore[32], take_over[128], other[600];
	const char *delay = getenv("GPUWM_TEST_RESTART_DELAY");
	const char *words[20] = {keeper, "--restart-delay", delay ? delay : "0", "--runtime-dir", d->dir};
	const char *const flags[] = {"--config", conf, NULL};
	size_t count = 5;

	snprintf(keeper, sizeof keeper, "%s/bin/gpuwm-keeper", build_path());
	snprintf(acting, sizeof acting, "%s/tests/tools/before-gpuwmd", build_path());
	snprintf(acts, sizeof acts, "%s/acts", d->dir);
	snprintf(conf, sizeof conf, "%s/gpuwmd.conf", d->dir);
	if (how->store_max) {
		words[count++] = "--store-max";
		words[count++] = how->store_max;
	}
	if (how->take_over) {
		snprintf(take_over, sizeof take_over, "%s/take-over", d->dir);
		words[count++] = "--take-over";
		words[count++] = take_over;
	}
	words[count++] = "--";
	if (how->program) {
		/* $0 is the program that comes next, which does not run. */
		snprintf(other, sizeof other, "exec %s \"$@\"", how->program);
		words[count++] = "/bin/sh";
		words[count++] = "-c";
		words[count++] = other;
	}
	if (how->fdstore) {
		snprintf(fdstore, sizeof fdstore, "FDSTORE=%s", how->fdstore);
		words[count++] = "/usr/bin/env";
		words[count++] = fdstore;
	}
	if (how->acts) {
		words[count++] = acting;
		words[count++] = acts;
	}
	preload(how->preload);
	d->keeper = gpuwmd_spawn_by(d, words, flags);
	preload(NULL);
}

struct gpuwmd *gpuwmd_spawn_kept(const struct kept *how)
{
	struct gpuwmd *d = gpuwmd_new();

	kept_configure(d, how);
	spawn(d, how);
	return d;
}

struct gpuwmd *gpuwmd_start_kept(const struct kept *how)
{
	struct gpuwmd *d = gpuwmd_spawn_kept(how);

	cr_assert(EVENTUALLY(NEXT_MS, (d->pid = kept_pid(d)) > 0 && access(d->admin_socket, F_OK) == 0),
		  "the keeper starts no gpuwmd");
	gpuwmd_wait(d);
	d->keeper_fds = fds_of(d->keeper);
	snprintf(d->instance, sizeof d->instance, "%s", gpuwm_instance(d->admin));
	return d;
}

void keeper_restart(struct gpuwmd *d, const struct kept *how)
{
	cr_assert(kill(d->keeper, SIGKILL) == 0 && waitpid(d->keeper, NULL, 0) == d->keeper);
	kept_configure(d, how);
	spawn(d, how);
}

pid_t keeper_succeed(struct gpuwmd *d, const struct kept *how)
{
	pid_t before = d->keeper;

	kept_configure(d, how);
	spawn(d, how);
	return before;
}

uint64_t number_wanted(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

unsigned kills_wanted(unsigned otherwise)
{
	return (unsigned)number_wanted("GPUWM_STORM_KILLS", otherwise);
}

/* ---- the next one ----------------------------------------------------- */

/* Its children may be loaders of a dead gpuwmd too, so that they don't tell. */
pid_t kept_pid(const struct gpuwmd *d)
{
	FILE *file = fopen(d->log, "re");
	const char *words;
	char line[1024];
	pid_t pid = 0;

	while (file && fgets(line, sizeof line, file)) {
		words = strstr(line, "is started (process ");
		if (words)
			sscanf(words, "is started (process %d)", &pid);
	}
	if (file)
		fclose(file);
	return pid;
}

static void take_over(struct gpuwmd *d, struct gpuwm_client *client, pid_t pid)
{
	gpuwm_close(d->admin);
	d->admin = client;
	d->pid = pid;
	snprintf(d->instance, sizeof d->instance, "%s", gpuwm_instance(client));
}

/* It serves before the keeper has written that it was started. */
static pid_t pid_of(struct gpuwm_client *client)
{
	json_t *status = query(client, "status", NULL);
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	return pid;
}

bool kept_next_is_there(struct gpuwmd *d)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.flags = GPUWM_CONNECT_ADMIN;
	if (gpuwm_connect(&options, &client) < 0)
		return false;
	if (strcmp(gpuwm_instance(client), d->instance) != 0) {
		take_over(d, client, pid_of(client));
		return true;
	}
	gpuwm_close(client);
	return false;
}

void kept_wait(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(NEXT_MS, kept_next_is_there(d)), "no gpuwmd comes after %d: %s", (int)d->pid,
		  gpuwm_error()->message);
}

void kept_kill(struct gpuwmd *d, int signal_number)
{
	cr_assert(kill(d->pid, signal_number) == 0);
	kept_wait(d);
}

/* ---- looking ---------------------------------------------------------- */

char *kept_registry(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "list", NULL), *version;
	char *text;
	size_t i;

	json_object_del(answer, "seq");
	json_array_foreach(json_object_get(answer, "versions"), i, version) {
		json_object_del(version, "leases");
		json_object_del(version, "last_used_ms"); /* it is saved with the next change */
	}
	text = json_dumps(answer, JSON_INDENT(1) | JSON_SORT_KEYS);
	json_decref(answer);
	return text;
}

/* memfds are told by their inodes: a descriptor that was passed on is the same memory. */
struct memory {
	ino_t seen[4096];
	size_t count;
	uint64_t bytes;
};

static void add_memfd(struct memory *memory, const struct stat *status)
{
	for (size_t i = 0; i < memory->count; i++) {
		if (memory->seen[i] == status->st_ino)
			return;
	}
	cr_assert(memory->count < sizeof memory->seen / sizeof memory->seen[0]);
	memory->seen[memory->count++] = status->st_ino;
	memory->bytes += (uint64_t)status->st_blocks * 512;
}

/* The kernel has taken the process's memory, and with it the command line. Then only root may list the descriptors. */
static bool is_over(pid_t pid)
{
	char path[64], first;
	bool over;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	file = fopen(path, "re");
	over = !file || fread(&first, 1, 1, file) == 0;
	if (file)
		fclose(file);
	return over;
}

static void add_memfds(struct memory *memory, pid_t pid)
{
	char folder_path[64], path[320], target[256];
	struct stat status;
	DIR *folder;

	snprintf(folder_path, sizeof folder_path, "/proc/%d/fd", (int)pid);
	folder = opendir(folder_path);
	cr_assert(folder || is_over(pid), "%s can't be read, though the process runs", folder_path);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		ssize_t length;

		snprintf(path, sizeof path, "%s/%s", folder_path, entry->d_name);
		length = readlink(path, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		if (strncmp(target, "/memfd:", 7) == 0 && !strstr(target, "gpuwm-state") &&
		    stat(path, &status) == 0)
			add_memfd(memory, &status);
	}
	if (folder)
		closedir(folder);
}

uint64_t kept_memory(const struct gpuwmd *d)
{
	static struct memory memory;
	pid_t loaders[CHILDREN_MAX];
	size_t count = loaders_of(d->pid, loaders);

	memory.count = memory.bytes = 0;
	add_memfds(&memory, d->keeper);
	add_memfds(&memory, d->pid);
	for (size_t i = 0; i < count; i++)
		add_memfds(&memory, loaders[i]);
	return memory.bytes;
}

size_t log_count(const struct gpuwmd *d, const char *words)
{
	FILE *file = fopen(d->log, "re");
	char line[2048];
	size_t count = 0;

	cr_assert(file);
	while (fgets(line, sizeof line, file))
		count += strstr(line, words) != NULL;
	fclose(file);
	return count;
}

/* ---- leases without the library --------------------------------------- */

int raw_lease(int sock, const char *ref, struct raw_lease *ret)
{
	static struct raw_reply reply;
	struct fields f;
	int code;

	RAW_SEND(sock, 2, "get_handles", TEXT("ref", ref));
	cr_assert(raw_receive(sock, &reply));
	code = reply.message.error.code;
	if (code == 0) {
		fields_of(&f, reply.message.body);
		ret->lease = fields_u64(&f, "lease");
		fields_hex128(&f, "version", ret->version);
		cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	}
	raw_reply_clear(&reply);
	return code;
}

static void resume_send(const struct gpuwmd *d, int sock, const struct raw_lease *leases, size_t count)
{
	struct message_writer w;

	raw_request(&w, 2, "resume");
	message_begin_array(&w, "leases");
	for (size_t i = 0; i < count; i++) {
		message_begin_map(&w, NULL);
		message_put_u64(&w, "lease", leases[i].lease);
		message_put_hex128(&w, "version", leases[i].version);
		message_put_text(&w, "device", d->device);
		message_put_u64(&w, "rank", 0);
		message_end(&w);
	}
	message_end(&w);
	raw_send(sock, &w);
}

static void resumed_read(const struct message *message, size_t count, int *ret_codes, uint64_t *ret_grace_ms)
{
	const msgpack_object *array;
	struct fields f, one;
	uint32_t length;

	fields_of(&f, message->body);
	array = fields_array(&f, "leases", &length);
	*ret_grace_ms = fields_u64(&f, "grace_ms");
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	cr_assert_eq(length, count);
	for (uint32_t i = 0; i < length; i++) {
		struct error error = {0};

		fields_of(&one, &array[i]);
		if (fields_have(&one, "lease"))
			cr_assert_gt(fields_u64(&one, "lease"), 0);
		else
			cr_assert(fields_error(&one, "error", &error) && error.message[0]);
		ret_codes[i] = error.code;
	}
}

int raw_resume(const struct gpuwmd *d, int sock, const struct raw_lease *leases, size_t count, int *ret_codes,
	       uint64_t *ret_grace_ms)
{
	static struct raw_reply reply;
	int code;

	resume_send(d, sock, leases, count);
	cr_assert(raw_receive(sock, &reply));
	code = reply.message.error.code;
	if (code == 0)
		resumed_read(&reply.message, count, ret_codes, ret_grace_ms);
	raw_reply_clear(&reply);
	return code;
}

int raw_resume_one(const struct gpuwmd *d, int sock, const struct raw_lease *lease)
{
	uint64_t grace;
	int code = 0;

	cr_assert_eq(raw_resume(d, sock, lease, 1, &code, &grace), 0);
	return code;
}
