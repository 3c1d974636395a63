#include "load.h"

#include "exit.h"
#include "patience.h"

#include "../../base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_END ".cut"
#define NAMES_TEXT 512 /* of all shipped plans, in a message */

/* Beside the program: in the build, and below any PREFIX. Returns false if that can't be found out. */
static bool folder_find(char *ret, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", ret, size - 1);
	char *slash;

	if (length < 0)
		return false;
	ret[length] = '\0';
	slash = strrchr(ret, '/');
	return slash && snprintf(slash, size - (size_t)(slash - ret), "/../share/gpuwm/cuts") <
				(int)(size - (size_t)(slash - ret));
}

static bool ends_so(const char *name)
{
	size_t length = strlen(name), end = strlen(FILE_END);

	return length > end && strcmp(name + length - end, FILE_END) == 0;
}

static int is_plan(const struct dirent *entry)
{
	return ends_so(entry->d_name);
}

size_t cut_names(void (*offer)(const char *name, void *user_data), void *user_data)
{
	char folder[PATH_BYTES_MAX + 1];
	struct dirent **entries = NULL;
	int count = folder_find(folder, sizeof(folder)) ? scandir(folder, &entries, is_plan, alphasort) : 0;

	for (int i = 0; i < count; i++) {
		char *name = entries[i]->d_name;

		name[strlen(name) - strlen(FILE_END)] = '\0';
		offer(name, user_data);
		free(entries[i]);
	}
	free(entries);
	return count > 0 ? (size_t)count : 0;
}

static void name_add(const char *name, void *user_data)
{
	char *text = user_data;
	size_t used = strlen(text);

	snprintf(text + used, NAMES_TEXT - used, "%s%s", used ? ", " : "", name);
}

static int unknown(const char *name)
{
	char names[NAMES_TEXT] = "", detail[NAMES_TEXT + 100];

	if (cut_names(name_add, names) == 0)
		return exit_with(EXIT_NOT_FOUND, "the path of a file has a / in it, or .cut at its end",
				 "no cut plans are installed beside this gpuwmctl (share/gpuwm/cuts)");
	snprintf(detail, sizeof(detail), "there are: %s. The path of a file has a / in it, or .cut at its end",
		 names);
	return exit_with(EXIT_NOT_FOUND, detail, "no cut plan has the name '%s'", name);
}

/* The size of a pipe is not known before its end. */
static int file_read(const char *path, char **ret)
{
	FILE *file;
	char *text;
	size_t bytes;
	int failed;

	patience_begin(path, PATIENCE_MS, NULL);
	file = fopen(path, "re");
	text = file ? calloc(1, CUT_BYTES_MAX + 2) : NULL;
	bytes = text ? fread(text, 1, CUT_BYTES_MAX + 1, file) : 0;
	failed = !text || ferror(file) ? errno : 0;
	if (file)
		fclose(file);
	patience_end();
	if (failed == 0 && bytes <= CUT_BYTES_MAX && strlen(text) == bytes) {
		*ret = text;
		return EXIT_DONE;
	}
	free(text);
	if (failed)
		return exit_with(exit_code_of(-failed), NULL, "reading the cut plan %s failed: %s", path,
				 strerror(failed));
	if (bytes > CUT_BYTES_MAX)
		return exit_with(EXIT_FAILED, "one glob may stand for many tensors",
				 "the cut plan %s has more than %d bytes", path, CUT_BYTES_MAX);
	return exit_with(EXIT_FAILED, "a plan is a text", "the cut plan %s has a zero byte", path);
}

int cut_read(const char *given, char **ret)
{
	char path[PATH_BYTES_MAX + 1];
	size_t used;

	if (strchr(given, '/') || ends_so(given))
		return file_read(given, ret);
	if (!folder_find(path, sizeof(path)))
		return unknown(given);
	used = strlen(path);
	snprintf(path + used, sizeof(path) - used, "/%s" FILE_END, given);
	return access(path, F_OK) == 0 ? file_read(path, ret) : unknown(given);
}
