/* The open files of a snapshot, which a load is passed. */
#include "hub.h"
#include "exit.h"
#include "../../base/limits.h"
#include "../../base/text.h"
#include "../../base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WEIGHTS_END ".safetensors"
#define INDEX_END ".safetensors.index.json"
#define LIST_BYTES 400 /* of a sentence, for the names that are left out */

struct opening {
	const struct hub_snapshot *snapshot;
	struct hub_files *files;
	bool weights; /* what is opened now: the files without which there is no load, or the others */
	size_t left; /* others that are not passed */
	char list[LIST_BYTES];
};

/* Names the file in the sentence at the end, as long as there is room. */
static void leave(struct opening *o, const char *name, const char *why)
{
	size_t used = strlen(o->list);
	char shown[UTF8_SHOWN_MAX(TEXT_SHOWN_MAX)];

	o->left++;
	utf8_show(name, shown, TEXT_SHOWN_MAX);
	if (used + strlen(shown) + strlen(why) + 8 < sizeof(o->list))
		snprintf(o->list + used, sizeof(o->list) - used, "%s%s (%s)", used ? ", " : "", shown, why);
}

/* Whether the file lies in the snapshot's folder, or among its repository's blobs. */
static bool is_of_repository(const struct opening *o, int fd)
{
	const char *folder = o->snapshot->folder, *end = strstr(folder, "/snapshots/");
	char link[48], path[PATH_MAX];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	for (const char *next = end; next; next = strstr(end + 1, "/snapshots/"))
		end = next;
	if (strncmp(path, folder, strlen(folder)) == 0 && path[strlen(folder)] == '/')
		return true;
	return end && strncmp(path, folder, (size_t)(end - folder)) == 0 &&
	       strncmp(path + (end - folder), "/blobs/", strlen("/blobs/")) == 0;
}

static int add(struct opening *o, const char *name, int fd)
{
	struct hub_files *files = o->files;
	char *copy = strdup(name);

	if (!copy) {
		close(fd);
		return exit_with(EXIT_FAILED, NULL, "out of memory");
	}
	files->list[files->count++] = (struct gpuwm_load_file){copy, fd};
	/* cppcheck-suppress [memleak, resourceLeak] ; the list has both */
	return EXIT_DONE;
}

/* Weights have to be there, whatever their links say: what is wrong with them ends the load. */
static int open_weights(struct opening *o, int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat stat;

	if (fd < 0)
		return exit_with(exit_code_of(-errno), NULL, "%s/%s can't be opened: %s", o->snapshot->folder,
				 name, strerror(errno));
	if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) {
		close(fd);
		return EXIT_DONE;
	}
	if (o->files->count == LOAD_FILES_MAX) {
		close(fd);
		return exit_with(EXIT_FAILED, "make its cache a root of gpuwmd: root in [loader]",
				 "%s has more than %d files, which is all that can be passed",
				 o->snapshot->folder, LOAD_FILES_MAX);
	}
	return add(o, name, fd);
}

/* entry: the last part of the name. */
static int open_other(struct opening *o, int folder, const char *entry, const char *name)
{
	const char *why = NULL;
	struct stat stat;
	int fd;

	if (strlen(name) > LOAD_FILE_NAME_BYTES_MAX || o->files->count == LOAD_FILES_MAX) {
		leave(o, name,
		      o->files->count == LOAD_FILES_MAX ? "more files than can be passed"
							: "its name is too long");
		return EXIT_DONE;
	}
	fd = openat(folder, entry, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		why = strerror(errno);
	else if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode))
		why = "no regular file";
	else if (!is_of_repository(o, fd))
		why = "a link out of the repository";
	if (!why)
		return add(o, name, fd);
	leave(o, name, why);
	if (fd >= 0)
		close(fd);
	return EXIT_DONE;
}

static bool is_folder(int folder, const char *entry)
{
	struct stat stat;

	return fstatat(folder, entry, &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(stat.st_mode);
}

/* prefix: the folder, with a slash at its end; "" is the snapshot's. Takes over the descriptor. */
static int open_folder(struct opening *o, int fd, const char *prefix, unsigned depth)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	char name[PATH_MAX];
	int code = EXIT_DONE;

	if (!dir) {
		code = prefix[0] ? EXIT_DONE
				 : (int)exit_with(exit_code_of(-errno), NULL, "%s can't be read: %s",
						  o->snapshot->folder, strerror(errno));
		if (prefix[0])
			leave(o, prefix, strerror(errno));
		if (fd >= 0)
			close(fd);
		return code;
	}
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (code == EXIT_DONE && (entry = readdir(dir))) {
		const bool weights = !prefix[0] && (text_ends(entry->d_name, WEIGHTS_END) ||
						    text_ends(entry->d_name, INDEX_END));

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof(name), "%s%s", prefix, entry->d_name);
		if (o->weights && weights && entry->d_name[0] != '.')
			code = open_weights(o, dirfd(dir), name);
		else if (o->weights || weights)
			continue;
		else if (entry->d_name[0] == '.')
			leave(o, name, "hidden");
		else if (!is_folder(dirfd(dir), entry->d_name))
			code = open_other(o, dirfd(dir), entry->d_name, name);
		else if (depth == FILE_DEPTH_MAX)
			leave(o, name, "too deep");
		else
			code = open_folder(o,
					   openat(dirfd(dir), entry->d_name,
						  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
					   strcat(name, "/"), depth + 1);
	}
	closedir(dir);
	return code;
}

int hub_files_open(const struct hub_snapshot *snapshot, struct hub_files *ret_files)
{
	struct hub_files files = {.list = calloc(LOAD_FILES_MAX, sizeof(*files.list))};
	struct opening o = {.snapshot = snapshot, .files = &files, .weights = true};
	int code;

	if (!files.list)
		return exit_with(EXIT_FAILED, NULL, "out of memory");
	code = open_folder(&o, open(snapshot->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "", 0);
	o.weights = false;
	if (code == EXIT_DONE)
		code = open_folder(&o, open(snapshot->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "", 0);
	if (code == EXIT_DONE && o.left > 0)
		exit_note(NULL, "%zu of the snapshot's files and folders %s left out: %s", o.left,
			  o.left == 1 ? "is" : "are", o.list);
	if (code == EXIT_DONE)
		*ret_files = files;
	else
		hub_files_close(&files);
	return code;
}

void hub_files_close(struct hub_files *files)
{
	while (files->count > 0) {
		files->count--;
		close(files->list[files->count].fd);
		free((char *)files->list[files->count].name);
	}
	free(files->list);
	files->list = NULL;
}
