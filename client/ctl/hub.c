#include "hub.h"
#include "exit.h"
#include "../../base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REVISION_MAX 255 /* of a file name */
#define MAIN "main"
#define COMMIT_SHORT 7 /* digits, as the hub and git shorten commits */
#define INDEX_END ".safetensors.index.json"
#define WHOLE "model.safetensors" /* a folder that has it needs no shards */

/* What hf:ORG/NAME@REVISION says. */
struct wanted {
	char repository[HUB_NAME_MAX + 1], revision[REVISION_MAX + 1];
};

bool hub_is_source(const char *source)
{
	return strncmp(source, HUB_PREFIX, strlen(HUB_PREFIX)) == 0;
}

/* ---- the source ---------------------------------------------------------- */

/* Two dashes stand for the slash in the folder's name, so the hub has no such names. */
static bool repository_name_is_valid(const char *name)
{
	const char *slash = strchr(name, '/');
	const size_t fine = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./");

	return name[0] && !name[fine] && !strstr(name, "--") && !strstr(name, "..") &&
	       !strchr("-./", name[0]) && (!slash || (slash[1] && !strchr(slash + 1, '/')));
}

static int wanted_read(const char *source, struct wanted *ret)
{
	const char *name = source + strlen(HUB_PREFIX), *at = strchr(name, '@');
	const size_t length = at ? (size_t)(at - name) : strlen(name);

	if (length < sizeof(ret->repository) && (!at || strlen(at + 1) < sizeof(ret->revision))) {
		snprintf(ret->repository, sizeof(ret->repository), "%.*s", (int)length, name);
		snprintf(ret->revision, sizeof(ret->revision), "%s", at ? at + 1 : MAIN);
		/* The revision is part of a path below refs. */
		if (repository_name_is_valid(ret->repository) && ret->revision[0] && ret->revision[0] != '/' &&
		    !strstr(ret->revision, ".."))
			return EXIT_DONE;
	}
	return exit_with(EXIT_USAGE, "such as hf:Qwen/Qwen3-8B, or hf:Qwen/Qwen3-8B@main",
			 "'%s' names no model of the hub", source);
}

/* The command that downloads it. */
static int wanted_tell_missing(const struct wanted *wanted, const char *what, const char *where)
{
	char remedy[2 * REVISION_MAX + HUB_NAME_MAX];
	const bool is_main = strcmp(wanted->revision, MAIN) == 0;

	snprintf(remedy, sizeof(remedy), "hf download %s%s%s fetches it", wanted->repository,
		 is_main ? "" : " --revision ", is_main ? "" : wanted->revision);
	return exit_with(EXIT_NOT_FOUND, remedy, "%s in the hub's cache %s", what, where);
}

/* ---- the cache ----------------------------------------------------------- */

void hub_names(void (*found)(const char *repository, const void *user_data), const void *user_data)
{
	static const char prefix[] = "models--";
	char path[PATH_MAX], repository[HUB_NAME_MAX + 1];
	struct dirent *entry;
	const char *name, *dashes;
	DIR *dir = hub_cache_path(path, sizeof(path), NULL) == 0 ? opendir(path) : NULL;
	int length;

	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		name = entry->d_name + strlen(prefix);
		dashes = strstr(name, "--");
		length = dashes ? snprintf(repository, sizeof(repository), "%.*s/%s", (int)(dashes - name),
					   name, dashes + 2)
				: snprintf(repository, sizeof(repository), "%s", name);
		if (length <= HUB_NAME_MAX)
			found(repository, user_data);
	}
	if (dir)
		closedir(dir);
}

/* Reads the commit that a branch or a tag names. Returns whether there is one. */
static bool ref_read(const char *repository, const char *revision, char ret_commit[HUB_COMMIT_MAX + 1])
{
	char path[PATH_MAX];
	ssize_t bytes = -1;
	int fd = -1;

	if (snprintf(path, sizeof(path), "%s/refs/%s", repository, revision) < (int)sizeof(path))
		fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0) {
		bytes = read(fd, ret_commit, HUB_COMMIT_MAX);
		close(fd);
	}
	ret_commit[bytes > 0 ? bytes : 0] = '\0';
	ret_commit[strspn(ret_commit, "0123456789abcdef")] = '\0';
	return ret_commit[0];
}

/* Finds the only snapshot whose commit begins so. Returns whether there is exactly one. */
static bool commit_complete(const char *repository, const char *beginning, char ret_commit[HUB_COMMIT_MAX + 1])
{
	char path[PATH_MAX];
	const size_t length = strlen(beginning);
	size_t found = 0;
	struct dirent *entry;
	DIR *dir = NULL;

	if (length >= COMMIT_SHORT &&
	    snprintf(path, sizeof(path), "%s/snapshots", repository) < (int)sizeof(path))
		dir = opendir(path);
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (dir && (entry = readdir(dir)))
		if (strncmp(entry->d_name, beginning, length) == 0 && strlen(entry->d_name) <= HUB_COMMIT_MAX) {
			snprintf(ret_commit, HUB_COMMIT_MAX + 1, "%.*s", HUB_COMMIT_MAX, entry->d_name);
			found++;
		}
	if (dir)
		closedir(dir);
	return found == 1;
}

/* ---- whether it is complete ---------------------------------------------- */

/* The files that a snapshot misses. */
struct missing {
	char first[NAME_MAX + 1];
	size_t count;
};

static void missing_add(struct missing *missing, const char *name)
{
	if (missing->count++ == 0)
		snprintf(missing->first, sizeof(missing->first), "%s", name);
}

static bool file_is_there(int folder, const char *name)
{
	return faccessat(folder, name, F_OK, 0) == 0;
}

/* Adds the shards that an index names and that are not there. What is wrong with the index itself, the loader says better. */
static void missing_add_shards(struct missing *missing, int folder, const char *index)
{
	int fd = openat(folder, index, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	json_t *all = fd < 0 ? NULL : json_loadfd(fd, 0, NULL), *shards = json_object(), *value;
	const char *tensor, *shard;

	json_object_foreach(json_object_get(all, "weight_map"), tensor, value)
		if (json_is_string(value)) /* many tensors are in one shard */
			json_object_set_new(shards, json_string_value(value), json_true());
	json_object_foreach(shards, shard, value)
		if (!file_is_there(folder, shard))
			missing_add(missing, shard);
	json_decref(shards);
	json_decref(all);
	if (fd >= 0)
		close(fd);
}

/* Blobs of downloads that have not ended. */
static size_t downloads_count(const char *repository)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir = NULL;
	size_t count = 0;

	if (snprintf(path, sizeof(path), "%s/blobs", repository) < (int)sizeof(path))
		dir = opendir(path);
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (dir && (entry = readdir(dir)))
		count += strstr(entry->d_name, ".incomplete") != NULL;
	if (dir)
		closedir(dir);
	return count;
}

static int snapshot_tell_missing(const struct hub_snapshot *snapshot, const char *repository,
				 const struct missing *missing)
{
	const size_t begun = downloads_count(repository);
	char remedy[512], more[64] = "";

	if (missing->count > 1)
		snprintf(more, sizeof(more), ", and %zu more", missing->count - 1);
	snprintf(remedy, sizeof(remedy),
		 "%zu download%s not ended; hf download %s --revision %s fetches the rest", begun,
		 begun == 1 ? " has" : "s have", snapshot->repository, snapshot->commit);
	return exit_with(EXIT_DAMAGED, begun ? remedy : strchr(remedy, ';') + 2,
			 "the snapshot %s of %s is incomplete: %s is missing%s", snapshot->commit,
			 snapshot->repository, missing->count ? missing->first : "every file", more);
}

static int snapshot_check(const struct hub_snapshot *snapshot, const char *repository)
{
	struct missing missing = {0};
	size_t files = 0, length;
	struct dirent *entry;
	DIR *dir = opendir(snapshot->folder);

	if (!dir)
		return exit_with(exit_code_of(-errno), NULL, "%s can't be read: %s", snapshot->folder,
				 strerror(errno));
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		files++;
		length = strlen(entry->d_name);
		if (!file_is_there(dirfd(dir), entry->d_name)) /* a link whose blob is missing */
			missing_add(&missing, entry->d_name);
		else if (length >= strlen(INDEX_END) &&
			 strcmp(entry->d_name + length - strlen(INDEX_END), INDEX_END) == 0 &&
			 !file_is_there(dirfd(dir), WHOLE))
			missing_add_shards(&missing, dirfd(dir), entry->d_name);
	}
	closedir(dir);
	return files > 0 && missing.count == 0 ? EXIT_DONE
					       : snapshot_tell_missing(snapshot, repository, &missing);
}

/* ---- finding ------------------------------------------------------------- */

/* Returns the repository's folder in the cache, which the caller frees, or NULL. */
static char *repository_folder(const char *cache, const char *repository)
{
	const char *slash = strchr(repository, '/');
	char path[PATH_MAX];
	int length = slash ? snprintf(path, sizeof(path), "%s/models--%.*s--%s", cache,
				      (int)(slash - repository), repository, slash + 1)
			   : snprintf(path, sizeof(path), "%s/models--%s", cache, repository);

	return length < (int)sizeof(path) ? realpath(path, NULL) : NULL;
}

static int snapshot_find(const struct wanted *wanted, const char *cache, struct hub_snapshot *snapshot)
{
	char path[PATH_MAX], what[REVISION_MAX + HUB_NAME_MAX + 32];
	char *repository = repository_folder(cache, wanted->repository);
	int code;

	if (!repository) {
		snprintf(what, sizeof(what), "there is no %s", wanted->repository);
		return wanted_tell_missing(wanted, what, cache);
	}

	snprintf(snapshot->repository, sizeof(snapshot->repository), "%s", wanted->repository);
	snapshot->cache = realpath(cache, NULL);
	if (!snapshot->cache) {
		code = exit_with(EXIT_FAILED, NULL, "%s: %s", cache, strerror(errno));
		free(repository);
		return code;
	}

	if ((ref_read(repository, wanted->revision, snapshot->commit) ||
	     commit_complete(repository, wanted->revision, snapshot->commit)) &&
	    snprintf(path, sizeof(path), "%s/snapshots/%s", repository, snapshot->commit) < (int)sizeof(path))
		snapshot->folder = realpath(path, NULL);
	if (snapshot->folder) {
		code = snapshot_check(snapshot, repository);
	} else {
		snprintf(what, sizeof(what), "there is no snapshot of %s@%s", wanted->repository,
			 wanted->revision);
		code = wanted_tell_missing(wanted, what, snapshot->cache);
	}
	free(repository);
	return code;
}

int hub_cache_tell(int error)
{
	return exit_with(EXIT_FAILED, "set HF_HUB_CACHE to the folder with models--…",
			 "the folder of the Hugging Face hub's cache can't be found out: %s",
			 error == -ENOENT ? "this user has no home" : strerror(-error));
}

int hub_find(const char *source, struct hub_snapshot *ret_snapshot)
{
	struct hub_snapshot snapshot = {.folder = NULL};
	struct wanted wanted;
	char cache[PATH_MAX];
	int code = wanted_read(source, &wanted);

	if (code != EXIT_DONE)
		return code;
	code = hub_cache_path(cache, sizeof(cache), NULL);
	if (code < 0)
		return hub_cache_tell(code);
	code = snapshot_find(&wanted, cache, &snapshot);
	if (code == EXIT_DONE)
		*ret_snapshot = snapshot;
	else
		hub_clear(&snapshot);
	return code;
}

void hub_clear(struct hub_snapshot *snapshot)
{
	free(snapshot->cache);
	free(snapshot->folder);
	snapshot->cache = snapshot->folder = NULL;
}

void hub_ref(const struct hub_snapshot *snapshot, char ret_ref[HUB_REF_MAX])
{
	const char *slash = strchr(snapshot->repository, '/');

	snprintf(ret_ref, HUB_REF_MAX, "%s@%.*s", slash ? slash + 1 : snapshot->repository, COMMIT_SHORT,
		 snapshot->commit);
}
