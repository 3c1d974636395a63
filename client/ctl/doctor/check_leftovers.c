/* leftovers: what faults of the past left behind, and nobody takes away. */
#include "groups.h"

#include "../answer.h"
#include "gpuwmd.h"
#include "../../../proto/names.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Temporary names of gpuwmctl save and of the library's: client/lib/calls/save_folder.c. A save that ends removes them. */
#define SAVE_PATTERN ".*.safetensors*.????????????????.tmp"
/* A root has a folder for each model, and that one a folder for each version. */
#define DEPTH_MAX 2
/* A root may have a million files. What is not looked at, the finding says. */
#define ENTRIES_MAX 20000
#define NAMED_MAX 3

struct search {
	unsigned looked, found;
	char first[PATH_BYTES_MAX + 1];
};

static void folder_search(struct search *search, const char *path, int depth)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;
	char below[PATH_BYTES_MAX + 1];
	struct stat info;

	/* cppcheck-suppress readdirCalled ; there is one thread */
	while (folder && search->looked < ENTRIES_MAX && (entry = readdir(folder))) {
		search->looked++;
		if (snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >= (int)sizeof(below))
			continue;
		if (fnmatch(SAVE_PATTERN, entry->d_name, FNM_PERIOD) == 0) {
			if (search->found++ == 0)
				snprintf(search->first, sizeof(search->first), "%s", below);
		} else if (depth > 0 && entry->d_name[0] != '.' && lstat(below, &info) == 0 &&
			   S_ISDIR(info.st_mode)) {
			folder_search(search, below, depth - 1);
		}
	}
	if (folder)
		closedir(folder);
}

static void saves_judge(struct findings *findings, const char *root)
{
	struct search search = {0};

	folder_search(&search, root, DEPTH_MAX);
	if (search.found > 0)
		finding(findings, VERDICT_WARNING, "saves", root,
			"if no save runs, remove them: find ROOT -name '.*.safetensors*.tmp' -mmin +60 -delete",
			"%u file%s of saves that were killed, or still run, such as %s", search.found,
			search.found == 1 ? "" : "s", search.first);
	else
		finding(findings, VERDICT_OK, "saves", root, NULL,
			search.looked < ENTRIES_MAX
				? "no save left files"
				: "no save left files among the first %u that were looked at",
			search.looked);
}

/* Models that nobody owns, or whose owner's account is gone: nobody but operators may change them. */
static void owners_judge(struct findings *findings, const json_t *list)
{
	const json_t *model;
	unsigned count = 0;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, model) {
		const char *name = answer_text(model, "model");

		if (!name_is_nameless(name) && !answer_find(list, "models", "model", name) &&
		    ++count <= NAMED_MAX)
			finding(findings, VERDICT_WARNING, "owner", name,
				"gpuwmctl status and gpuwmd's log say why",
				"gpuwmd does not know whose model this is: no publisher may add to it");
	}
	json_array_foreach(json_object_get(list, "models"), i, model) {
		const uid_t owner = (uid_t)answer_number(model, "owner_uid");

		/* cppcheck-suppress getpwuidCalled ; there is one thread */
		if (json_is_true(json_object_get(model, "by_operator")) || getpwuid(owner) ||
		    ++count > NAMED_MAX)
			continue;
		finding(findings, VERDICT_WARNING, "owner", answer_text(model, "model"),
			"an operator may retire its versions: gpuwmctl rm REF",
			"this model belongs to user %u, and there is no such user here", (unsigned)owner);
	}
	if (count > NAMED_MAX)
		finding(findings, VERDICT_WARNING, "owner", NULL, NULL, "and so do %u other models",
			count - NAMED_MAX);
	if (count == 0)
		finding(findings, VERDICT_OK, "owner", NULL, NULL,
			"every model has an owner, who is a user of this machine");
}

void check_leftovers(struct findings *findings, const char *socket)
{
	json_t *status = gpuwmd_ask(socket, "status"), *list = gpuwmd_ask(socket, "list");
	const json_t *root;
	size_t i;

	if (list)
		owners_judge(findings, list);
	else
		finding(findings, VERDICT_NOT_APPLICABLE, "owner", NULL, NULL,
			"gpuwmd, which tells the models, can't be reached");
	json_array_foreach(json_object_get(status, "roots"), i, root) {
		saves_judge(findings, json_string_value(root));
	}
	json_decref(status);
	json_decref(list);
}
