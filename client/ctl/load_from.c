#include "load.h"

#include "answer.h"
#include "patience.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool path_is_beneath(const char *path, const char *root)
{
	size_t length = strlen(root);

	while (length && root[length - 1] == '/')
		length--;
	return strncmp(path, root, length) == 0 && (path[length] == '/' || !path[length]);
}

/* Whether a folder between the root and the cache, such as a home of mode 0700, lets in its own user alone. The loader of a user whose
 * root lies in that folder is that user's. */
static bool path_is_private_below(const char *root, const char *cache)
{
	char path[PATH_MAX];
	struct stat stat_;

	for (size_t at = strlen(root) + 1; at <= strlen(cache); at++) {
		if (cache[at] != '/' && cache[at])
			continue;
		snprintf(path, sizeof(path), "%.*s", (int)at, cache);
		if (stat(path, &stat_) < 0 || !(stat_.st_mode & (S_IXGRP | S_IXOTH)))
			return true;
	}
	return false;
}

/* gpuwmd's operators alone load from paths, beneath its roots. Who may list all jobs is one. */
static bool hub_loads_path(struct gpuwm_client *client, const struct hub_snapshot *snapshot)
{
	json_t *status = NULL, *jobs = NULL, *member;
	bool found = false;
	size_t i;

	if (answer_ask(client, "jobs", NULL, &jobs) < 0)
		return false;
	json_decref(jobs);
	if (answer_ask(client, "status", NULL, &status) < 0)
		return false;
	json_array_foreach(json_object_get(status, "roots"), i, member) {
		const char *root = json_is_string(member) ? json_string_value(member) : NULL;

		found |= root && path_is_beneath(snapshot->folder, root) &&
			 !path_is_private_below(root, snapshot->cache);
	}
	json_decref(status);
	return found;
}

static int hub_pass_files(const char *text, const struct hub_snapshot *snapshot, const char *ref,
			  struct load_from *from)
{
	char remedy[4200];
	int code;

	if (asprintf(&from->source, "%s%s@%s", HUB_PREFIX, snapshot->repository, snapshot->commit) < 0) {
		from->source = NULL;
		return exit_with(EXIT_FAILED, NULL, "out of memory");
	}
	patience_begin(snapshot->folder, PATIENCE_MS, NULL);
	code = hub_files_open(snapshot, &from->files);
	patience_end();
	if (code != EXIT_DONE)
		return code;
	snprintf(
		remedy, sizeof(remedy),
		"gpuwmctl passes its files, so the version does not come back after a reboot; if gpuwm's loader may enter the "
		"cache, \"root = %s\" in [loader] of gpuwmd's configuration, and a load by an operator, change that",
		snapshot->cache);
	exit_note(remedy, "%s is the snapshot %s, loaded as %s", text, snapshot->commit, ref);
	return EXIT_DONE;
}

static int hub_find_source(struct gpuwm_client *client, const char *text, const char *ref,
			   struct load_from *from)
{
	struct hub_snapshot snapshot;
	int code;

	patience_begin(text, PATIENCE_MS, NULL);
	code = hub_find(text, &snapshot);
	patience_end();
	if (code != EXIT_DONE)
		return code;
	hub_ref(&snapshot, from->ref);
	ref = ref ? ref : from->ref;
	if (hub_loads_path(client, &snapshot)) {
		exit_note(snapshot.folder, "%s is the snapshot %s, loaded as %s", text, snapshot.commit, ref);
		from->source = snapshot.folder;
		snapshot.folder = NULL;
	} else {
		code = hub_pass_files(text, &snapshot, ref, from);
	}
	hub_clear(&snapshot);
	return code;
}

int load_from_find(struct gpuwm_client *client, const char *text, const char *ref, struct load_from *ret_from)
{
	struct load_from from = {0};
	int code = EXIT_DONE;

	if (hub_is_source(text)) {
		code = hub_find_source(client, text, ref, &from);
	} else {
		from.source = load_source(text);
		code = from.source ? EXIT_DONE : EXIT_FAILED;
	}
	if (code == EXIT_DONE)
		*ret_from = from;
	else
		load_from_clear(&from);
	return code;
}

void load_from_put(const struct load_from *from, struct gpuwm_load_options *options)
{
	options->source = from->source;
	options->files = from->files.list;
	options->file_count = from->files.count;
}

void load_from_clear(struct load_from *from)
{
	hub_files_close(&from->files);
	free(from->source);
	from->source = NULL;
}
