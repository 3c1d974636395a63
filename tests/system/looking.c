/* What tests see of a gpuwmd, and what they have it do. */
#include "harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_MS 30000

/* ---- looking ---------------------------------------------------------- */

json_t *query(struct gpuwm_client *client, const char *method, const char *filter)
{
	char *text;
	json_t *answer;
	json_error_t error;

	OK(gpuwm_query(client, method, filter, &text));
	answer = json_loads(text, 0, &error);
	cr_assert(answer, "%s: %s in %s", method, error.text, text);
	free(text);
	return answer;
}

uint64_t status_of(struct gpuwmd *d, const char *key)
{
	json_t *answer = query(d->admin, "status", NULL);
	json_t *value = json_object_get(answer, key);
	uint64_t number = json_is_boolean(value) ? json_is_true(value) : (uint64_t)json_integer_value(value);

	cr_assert(json_is_boolean(value) || json_is_integer(value), "status has no number '%s'", key);
	json_decref(answer);
	return number;
}

size_t fds_of(pid_t pid)
{
	char path[64];
	size_t count = 0;
	DIR *folder;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	cr_assert(folder, "%s: %s", path, strerror(errno));
	for (struct dirent *entry; (entry = readdir(folder));)
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

size_t fds_settled(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(START_MS, status_of(d, "jobs_running") == 0 && status_of(d, "standby") == 1 &&
					       status_of(d, "loaders") == 1));
	return fds_of(d->pid);
}

pid_t checker_at(struct gpuwmd *d, size_t position)
{
	json_t *status = query(d->admin, "status", NULL), *loader;
	size_t i, count = 0;
	pid_t pid = 0;

	json_array_foreach(json_object_get(status, "keeping"), i, loader) {
		if (json_is_true(json_object_get(loader, "checks")) && count++ == position)
			pid = (pid_t)json_integer_value(json_object_get(loader, "pid"));
	}
	json_decref(status);
	return pid;
}

bool checkers_end(struct gpuwmd *d)
{
	bool none = true;
	pid_t pid;

	for (size_t i = 0; (pid = checker_at(d, i)) > 0; i++) {
		none = false;
		kill(pid, SIGKILL);
	}
	return none;
}

size_t children_of(pid_t pid, pid_t *ret_pids, size_t max)
{
	char path[64];
	size_t count = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	file = fopen(path, "re");
	cr_assert(file, "%s", path);
	while (count < max && fscanf(file, "%d", &ret_pids[count]) == 1)
		count++;
	fclose(file);
	return count;
}

/* But for the state, which holds no weights. */
static uint64_t memfds_of(pid_t pid)
{
	char path[320], target[256];
	uint64_t bytes = 0;
	struct stat stat_;
	DIR *folder;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	cr_assert(folder, "%s: %s", path, strerror(errno));
	for (struct dirent *entry; (entry = readdir(folder));) {
		ssize_t length;

		snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
		length = readlink(path, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		if (strncmp(target, "/memfd:", 7) == 0 && !strstr(target, "gpuwm-state") &&
		    stat(path, &stat_) == 0)
			bytes += (uint64_t)stat_.st_blocks * 512;
	}
	closedir(folder);
	return bytes;
}

/* The device's entry in an answer of status. */
static json_t *device_of(const struct gpuwmd *d, const json_t *status)
{
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
		if (strcmp(json_string_value(json_object_get(device, "device")), d->device) == 0)
			return device;
	return NULL;
}

uint64_t device_number(struct gpuwmd *d, const char *key)
{
	json_t *status = query(d->admin, "status", NULL);
	uint64_t number = (uint64_t)json_integer_value(json_object_get(device_of(d, status), key));

	json_decref(status);
	return number;
}

/* Both figures from one answer: a loader's context may end between two. */
uint64_t device_used(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL), *device = device_of(d, status);
	uint64_t used = (uint64_t)(json_integer_value(json_object_get(device, "used")) -
				   json_integer_value(json_object_get(device, "contexts")));

	json_decref(status);
	return used;
}

uint64_t memory_of(struct gpuwmd *d)
{
	return backend() == BACKEND_HOST ? memfds_of(d->pid) : device_used(d);
}

uint64_t rss_of(pid_t pid)
{
	unsigned long long size, resident = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	file = fopen(path, "re");
	cr_assert(file && fscanf(file, "%llu %llu", &size, &resident) == 2);
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool log_says(const struct gpuwmd *d, const char *words)
{
	FILE *file = fopen(d->log, "re");
	static char text[1 << 20];

	cr_assert(file);
	text[fread(text, 1, sizeof text - 1, file)] = 0;
	fclose(file);
	return strstr(text, words);
}

json_t *version_entry(struct gpuwmd *d, const char *model, const char *tag)
{
	json_t *answer = query(d->admin, "list", model), *entry, *found = NULL;
	size_t i;

	json_array_foreach(json_object_get(answer, "versions"), i, entry) {
		/* A failed version and its successor may share a tag: the later entry counts. */
		if (strcmp(json_string_value(json_object_get(entry, "tag")), tag) == 0) {
			json_decref(found);
			found = json_incref(entry);
		}
	}
	json_decref(answer);
	return found;
}

bool version_is(struct gpuwmd *d, const char *model, const char *tag, const char *state)
{
	json_t *entry = version_entry(d, model, tag);
	bool is = strcmp(entry ? json_string_value(json_object_get(entry, "state")) : "none", state) == 0;

	json_decref(entry);
	return is;
}

/* ---- operating -------------------------------------------------------- */

int load_on_device(struct gpuwmd *d, struct gpuwm_load_options options, uint64_t *ret_job)
{
	const char *device = d->device;

	options.devices = &device;
	options.device_count = 1;
	return gpuwm_load(d->admin, &options, ret_job);
}

int load_start(struct gpuwmd *d, const char *source, const char *name, const char *alias, uint64_t *ret_job)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);

	options.source = source;
	options.name = name;
	options.alias = alias;
	return load_on_device(d, options, ret_job);
}

int load_try(struct gpuwmd *d, const char *source, const char *name)
{
	uint64_t job;
	int r = load_start(d, source, name, NULL, &job);

	return r < 0 ? r : gpuwm_job_wait(d->admin, job, LOAD_MS);
}

void load_version(struct gpuwmd *d, const char *source, const char *name)
{
	OK(load_try(d, source, name));
}

void load_small(struct gpuwmd *d, unsigned count)
{
	char tag[16], name[32];

	for (unsigned i = 1; i <= count; i++) {
		snprintf(tag, sizeof tag, "v%u", i);
		snprintf(name, sizeof name, "m@%s", tag);
		load_version(d, checkpoint_write(d, tag, SMALL(i)), name);
	}
}

void load_scene(struct gpuwmd *d)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	load_small(d, 2);
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	options.model = "m";
	options.alias = "prod";
	options.to = "v1";
	OK(gpuwm_swap(d->admin, &options, NULL));
	options.to = "v2";
	OK(gpuwm_swap(d->admin, &options, NULL));
}

struct gpuwmd *with_two_versions(struct gpuwmd *d)
{
	load_small(d, 2);
	return d;
}

int swap_to(struct gpuwmd *d, const char *model, const char *to, bool retire_old)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = model;
	options.to = to;
	options.retire_old = retire_old;
	return gpuwm_swap(d->admin, &options, NULL);
}

void version_drop(struct gpuwmd *d, const char *model, const char *tag)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	json_t *entry = version_entry(d, model, tag), *answer = query(d->admin, "list", model), *alias;
	const char *id = json_string_value(json_object_get(entry, "version"));
	size_t i;

	cr_assert(entry, "there is no %s@%s", model, tag);
	options.model = model;
	json_array_foreach(json_object_get(answer, "aliases"), i, alias) {
		options.alias = json_string_value(json_object_get(alias, "alias"));
		if (strcmp(json_string_value(json_object_get(alias, "version")), id) == 0 &&
		    strcmp(options.alias, "previous") != 0)
			OK(gpuwm_swap(d->admin, &options, NULL));
	}
	OK(gpuwm_retire(d->admin, id, 10000));
	json_decref(answer);
	json_decref(entry);
}

void versions_drop(struct gpuwmd *d, const char *const *names)
{
	for (; *names; names++) {
		char model[64];
		const char *at = strchr(*names, '@');

		snprintf(model, sizeof model, "%.*s", (int)(at - *names), *names);
		version_drop(d, model, at + 1);
	}
}
