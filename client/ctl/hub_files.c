/* The open files of a snapshot. */
#include "hub.h"

#include "exit.h"

#include "../../base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a file of the snapshot's folder. Of a folder nothing is passed. */
static int file_open(const struct hub_snapshot *snapshot, int folder, const char *name, struct hub_files *files)
{
	struct stat stat;
	char *copy;
	int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return exit_with(exit_code_of(-errno), NULL, "%s/%s can't be opened: %s", snapshot->folder,
				 name, strerror(errno));
	if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) {
		close(fd);
		return EXIT_DONE;
	}
	copy = strdup(name);
	if (!copy || files->count == LOAD_FILES_MAX) {
		close(fd);
		free(copy);
		if (!copy)
			return exit_with(EXIT_FAILED, NULL, "out of memory");
		return exit_with(EXIT_FAILED, "make its cache a root of gpuwmd: root in [loader]",
				 "%s has more than %d files, which is all that can be passed", snapshot->folder,
				 LOAD_FILES_MAX);
	}
	files->list[files->count++] = (struct gpuwm_load_file){copy, fd};
	/* cppcheck-suppress [memleak, resourceLeak] ; the list has both */
	return EXIT_DONE;
}

int hub_files_open(const struct hub_snapshot *snapshot, struct hub_files *ret_files)
{
	struct hub_files files = {.list = calloc(LOAD_FILES_MAX, sizeof(*files.list))};
	DIR *dir = files.list ? opendir(snapshot->folder) : NULL;
	struct dirent *entry;
	int code = EXIT_DONE;

	if (!dir) {
		code = files.list ? (int)exit_with(exit_code_of(-errno), NULL, "%s can't be read: %s",
						   snapshot->folder, strerror(errno))
				  : (int)exit_with(EXIT_FAILED, NULL, "out of memory");
		free(files.list);
		return code;
	}
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (code == EXIT_DONE && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			code = file_open(snapshot, dirfd(dir), entry->d_name, &files);
	closedir(dir);
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
