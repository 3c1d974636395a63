#include "folder.h"

#include "format.h"
#include "../../base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A hub repository in a cache of huggingface_hub: snapshots/COMMIT are its models, and refs/main is a
 * file with the commit of the branch main. */
#define SNAPSHOTS "snapshots"
#define REFS "refs"
#define BRANCH "main"

#define FOLDERS_SHOWN 4 /* the folders that an error lists */
#define COMMIT_BYTES 64 /* a commit has 40 characters, or 64 with SHA-256 */

/* The folders in a folder: their number, and the first few names. */
struct inner {
	char names[FOLDERS_SHOWN][NAME_MAX + 1];
	size_t count;
};

static int open_inner(int folder, const char *name)
{
	return openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool is_folder(int folder, const struct dirent *entry)
{
	struct stat stat;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return fstatat(folder, entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(stat.st_mode);
}

/* Keeps the names that come first in their order. */
static void inner_add(struct inner *inner, const char *name)
{
	size_t at = inner->count < FOLDERS_SHOWN ? inner->count : FOLDERS_SHOWN;

	inner->count++;
	while (at > 0 && strcmp(inner->names[at - 1], name) > 0) {
		if (at < FOLDERS_SHOWN)
			strcpy(inner->names[at], inner->names[at - 1]);
		at--;
	}
	if (at < FOLDERS_SHOWN)
		snprintf(inner->names[at], sizeof(inner->names[at]), "%s", name);
}

/* Takes over the descriptor. A folder that can't be read counts as empty: the caller's error is about its files. */
static void inner_list(int fd, struct inner *ret)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	*ret = (struct inner){0};
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && is_folder(dirfd(dir), entry))
			inner_add(ret, entry->d_name);
	closedir(dir);
}

/* "a, b, and 2 more" */
static void inner_write(const struct inner *inner, char *text, size_t size)
{
	size_t shown = inner->count < FOLDERS_SHOWN ? inner->count : FOLDERS_SHOWN, length = 0;

	text[0] = '\0';
	for (size_t i = 0; i < shown && length < size; i++)
		length += (size_t)snprintf(text + length, size - length, "%s%.*s", i ? ", " : "",
					   text_shown(inner->names[i]), inner->names[i]);
	if (inner->count > shown && length < size)
		snprintf(text + length, size - length, ", and %zu more", inner->count - shown);
}

/* Reads the commit of refs/main, and sets it only if it is one of the repository's snapshots: the
 * file may say anything. Returns whether it did. */
static bool read_main(int folder, char ret[COMMIT_BYTES + 1])
{
	int refs = open_inner(folder, REFS), snapshots = open_inner(folder, SNAPSHOTS), snapshot = -1;
	int fd = refs < 0 ? -1 : openat(refs, BRANCH, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, ret, COMMIT_BYTES);

	if (bytes > 0) {
		ret[bytes] = '\0';
		ret[strcspn(ret, "/. \r\n")] = '\0';
		snapshot = ret[0] && snapshots >= 0 ? open_inner(snapshots, ret) : -1;
	}
	for (size_t i = 0; i < 4; i++) {
		const int open[] = {refs, snapshots, fd, snapshot};

		if (open[i] >= 0)
			close(open[i]);
	}
	return snapshot >= 0;
}

static int explain_repository(const struct folder *folder, struct error *error)
{
	char commit[COMMIT_BYTES + 1], list[TEXT_BYTES_MAX + 1], remedy[TEXT_BYTES_MAX + 1];
	struct inner inner;

	inner_list(open_inner(folder->fd, SNAPSHOTS), &inner);
	inner_write(&inner, list, sizeof(list));
	if (read_main(folder->fd, commit))
		snprintf(remedy, sizeof(remedy),
			 "name a snapshot: " SNAPSHOTS "/%s is what " REFS "/" BRANCH " names", commit);
	else if (inner.count > 0)
		snprintf(remedy, sizeof(remedy), "name a snapshot below " SNAPSHOTS ": %.800s", list);
	else
		snprintf(remedy, sizeof(remedy), "it has no snapshot: download it again, with `hf download`");
	return error_set(error, -ENOENT, remedy,
			 "%s is the folder of a hub repository: its models are in the folders below " SNAPSHOTS,
			 folder->path);
}

static bool path_ends_in(const char *path, const char *name)
{
	size_t length = strlen(path), tail = strlen(name);

	while (length > 1 && path[length - 1] == '/')
		length--;
	return length > tail && path[length - tail - 1] == '/' &&
	       strncmp(path + length - tail, name, tail) == 0;
}

int folder_explain(const struct folder *folder, struct error *error)
{
	char list[TEXT_BYTES_MAX + 1];
	struct inner inner;
	int snapshots = open_inner(folder->fd, SNAPSHOTS);

	if (snapshots >= 0) {
		close(snapshots);
		return explain_repository(folder, error);
	}
	inner_list(openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &inner);
	inner_write(&inner, list, sizeof(list));
	if (inner.count > 0)
		return error_set(error, -ENOENT,
				 path_ends_in(folder->path, SNAPSHOTS)
					 ? "name one of these snapshots"
					 : "name the folder that has the model's files",
				 "%s has no " FORMAT_NAMES " files, but folders: %s", folder->path, list);
	return error_set(error, -ENOENT, "is it the model's folder, and is the download complete?",
			 "%s has no " FORMAT_NAMES " files", folder->path);
}
