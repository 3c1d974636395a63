#include "save.h"

#include "../../../base/beneath.h"
#include "../../../base/grow.h"
#include "../../../base/leftover.h"
#include "../../../base/limits.h"
#include "../../../base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_MODE 0777 /* as the umask lets them be */
#define FILE_MODE 0666
#define PART_BYTES_MAX NAME_MAX /* a part of a name is a name of a file system */

int save_failed(const struct save *save, int code, const char *doing, const char *name)
{
	bool full = code == -ENOSPC || code == -EDQUOT || code == -EFBIG;

	return error_set(save->error, full ? -ENOSPC : code,
			 full ? "what was written is removed; make room, or save to another folder" : NULL,
			 "%s %s%s%s failed: %s", doing, save->path, name ? "/" : "", name ? name : "",
			 strerror(-code));
}

static int names_no_memory(const struct save *save)
{
	return error_set(save->error, -ENOMEM, NULL, "out of memory for the names of files");
}

/* ---- names ------------------------------------------------------------------- */

static bool is_model_file(const char *name)
{
	return text_ends(name, ".safetensors") || text_ends(name, ".safetensors.index.json");
}

bool save_name_fits(const char *name)
{
	if (!path_is_beneath(name) || strlen(name) > FILE_NAME_BYTES_MAX || is_model_file(name))
		return false;
	for (const char *part = name, *end; *part; part = *end ? end + 1 : end) {
		end = strchrnul(part, '/');
		if (end - part > PART_BYTES_MAX)
			return false;
	}
	return true;
}

static bool has_name(const struct save *save, const char *name)
{
	size_t i = 0;

	while (i < save->name_count && strcmp(save->names[i].name, name) != 0)
		i++;
	return i < save->name_count;
}

/* The temporary name is no model file's, whoever looks into the folder, and nobody can make such a file beforehand. */
static int add_name(struct save *save, const char *name)
{
	struct save_name *of = &save->names[save->name_count];
	char temporary[NAME_MAX + 1];
	int r = leftover_name(name, temporary);

	if (r < 0)
		return error_set(save->error, r, NULL, "the kernel gave no random bytes: %s", strerror(-r));
	of->name = strdup(name);
	of->temporary = strdup(temporary);
	if (!of->name || !of->temporary) {
		free(of->name);
		free(of->temporary);
		*of = (struct save_name){0};
		return names_no_memory(save);
	}
	save->name_count++;
	return 0;
}

static int collect_names(struct save *save)
{
	size_t most = save->file_count + 1;
	int r = 0;

	for (size_t i = 0; i < save->world; i++)
		most += save_view(save->mappings[i])->header->file_count;
	save->names = calloc(most, sizeof(*save->names));
	if (!save->names)
		return names_no_memory(save);
	for (size_t i = 0; r == 0 && i < save->file_count; i++)
		r = add_name(save, save->files[i].name);
	for (size_t i = 0; r == 0 && i < save->world; i++) {
		const struct index_view *view = save_view(save->mappings[i]);

		for (uint32_t k = 0; r == 0 && k < view->header->file_count; k++) {
			const char *name = view->heap + view->files[k].name;

			if (save_name_fits(name) && !has_name(save, name))
				r = add_name(save, name);
		}
	}
	if (r == 0 && save->world == 1 && save->file_count > 1)
		r = add_name(save, SAVE_INDEX_NAME);
	return r;
}

/* ---- opening ------------------------------------------------------------------ */

static int folder_check_file(const struct save *save, const char *name, bool *ret_replaces)
{
	const bool is_replaced = has_name(save, name);

	*ret_replaces = *ret_replaces || is_replaced;
	if (is_replaced && !save->options.overwrite)
		return error_set(save->error, -EEXIST,
				 "save to another folder, or overwrite it (gpuwmctl save --force)",
				 "%s/%s exists", save->path, name);
	/* A folder has one model, or nobody can tell which one is meant. */
	if (is_model_file(name) && !is_replaced)
		return error_set(save->error, -EEXIST, "save to a folder without model files",
				 "%s has another model: %s", save->path, name);
	return 0;
}

static int folder_check_files(const struct save *save)
{
	int fd = openat(save->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	bool replaces = false;

	if (!folder) {
		r = save_failed(save, -errno, "listing", NULL);
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	while (r == 0 && (entry = readdir(folder)))
		r = folder_check_file(save, entry->d_name, &replaces);
	closedir(folder);
	for (size_t i = 0; r == 0 && i < save->name_count; i++)
		if (strchr(save->names[i].name, '/') &&
		    faccessat(save->folder, save->names[i].name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			r = folder_check_file(save, save->names[i].name, &replaces);
	return r == 0 && replaces ? save_check_sources(save) : r;
}

int save_folder_open(struct save *save)
{
	struct leftovers left;
	int r = collect_names(save);

	if (r < 0)
		return r;
	if (mkdir(save->path, FOLDER_MODE) == 0)
		save->made = true;
	else if (errno == ENOENT)
		return error_set(save->error, -ENOENT, "make that folder first, or save to another one",
				 "the folder that is to hold %s does not exist", save->path);
	else if (errno != EEXIST)
		return save_failed(save, -errno, "making the folder", NULL);
	save->folder = open(save->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (save->folder < 0)
		return save_failed(save, -errno, "opening the folder", NULL);
	/* Those that stay are in nobody's way: no later file has such a name. */
	leftovers_remove(save->folder, &left);
	if (left.living > 0)
		return error_set(save->error, -EBUSY, "wait until it is done, or save to another folder",
				 "another save writes into %s: %s is its file", save->path, left.worked_on);
	return folder_check_files(save);
}

/* ---- files --------------------------------------------------------------------- */

/* A disk that is full says so before anything is written, if the file system can reserve room. */
static int file_reserve(const struct save *save, int fd, const char *name, uint64_t bytes)
{
	char what[sizeof("no room for ") + NAME_MAX];
	int r;

	snprintf(what, sizeof(what), "no room for %s", name);
	r = file_grow(fd, bytes, what, "what was written is removed; make room, or save to another folder",
		      save->error);
	if (r == 0 && bytes > 0 && fallocate(fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP &&
	    errno != ENOSYS)
		r = save_failed(save, -errno, "making room for", name);
	return r;
}

int save_folder_create(struct save *save, const char *name, uint64_t bytes, int *ret_fd)
{
	struct save_name *of = save->names;
	struct stat st;
	int fd, r;

	while (strcmp(of->name, name) != 0)
		of++;
	fd = beneath_make(save->folder, of->temporary, O_WRONLY, FILE_MODE, &st);
	if (fd == -EPERM && st.st_nlink > 0)
		return error_set(save->error, -EPERM,
				 "save to a folder of a file system where files that you make are yours",
				 "%s/%s was made as a file of user %u with %u links, and user %u is saving",
				 save->path, of->name, (unsigned)st.st_uid, (unsigned)st.st_nlink,
				 (unsigned)geteuid());
	if (fd < 0)
		return save_failed(save, fd, "making", name);
	of->device = st.st_dev;
	of->inode = st.st_ino;
	r = file_reserve(save, fd, name, bytes);
	if (r < 0)
		close(fd);
	else
		*ret_fd = fd;
	return r;
}

int save_folder_finish(const struct save *save, const char *name, int fd)
{
	int r = fsync(fd) < 0 ? save_failed(save, -errno, "syncing", name) : 0;

	close(fd);
	return r;
}

static bool is_made_here(const struct save_name *of, const struct stat *st)
{
	return st->st_dev == of->device && st->st_ino == of->inode;
}

/* parent: the folder of the name. */
static int give_name_in(const struct save *save, struct save_name *of, int parent)
{
	const char *last = path_last(of->name);
	struct stat st;
	int r = 0;

	if (save->options.overwrite)
		r = renameat(save->folder, of->temporary, parent, last);
	else if (linkat(save->folder, of->temporary, parent, last, 0) == 0)
		r = unlinkat(save->folder, of->temporary, 0);
	else
		return save_failed(save, -errno, "naming", of->name);
	of->there = true;
	if (r < 0)
		return save_failed(save, -errno, "naming", of->name);
	if (fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return save_failed(save, -errno, "looking at", of->name);
	if (!is_made_here(of, &st))
		return error_set(save->error, -ESTALE, "save to a folder into which only you can write",
				 "%s/%s is not the file that was written: another process has replaced it",
				 save->path, of->name);
	return parent != save->folder && fsync(parent) < 0 ? save_failed(save, -errno, "syncing", of->name) : 0;
}

static int give_name(const struct save *save, struct save_name *of)
{
	int parent, r;

	if (!strchr(of->name, '/'))
		return give_name_in(save, of, save->folder);
	parent = beneath_open_parent(save->folder, of->name, &of->made);
	if (parent < 0)
		return save_failed(save, parent, "opening the folder of", of->name);
	r = give_name_in(save, of, parent);
	close(parent);
	return r;
}

int save_folder_commit(struct save *save)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < save->name_count; i++)
		r = give_name(save, &save->names[i]);
	if (r == 0 && fsync(save->folder) < 0)
		r = save_failed(save, -errno, "syncing", NULL);
	return r;
}

/* Others who may write into the folder can move what they like to any name there. What this call did not make stays. */
static void file_take_back(const struct save *save, const struct save_name *of, int parent)
{
	const char *last = path_last(of->name);
	struct stat st;

	if (of->there && !save->options.overwrite && fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    is_made_here(of, &st))
		unlinkat(parent, last, 0);
}

/* Removes a file that has its name, and those of its folders that were made for it and are empty. */
static void take_back(const struct save *save, struct save_name *of)
{
	for (bool is_file = true; is_file || of->made > 0; is_file = false) {
		int parent = beneath_open_parent(save->folder, of->name, NULL);
		char *slash = strrchr(of->name, '/');

		if (parent < 0)
			return;
		if (is_file)
			file_take_back(save, of, parent);
		if (!is_file && unlinkat(parent, path_last(of->name), AT_REMOVEDIR) == 0)
			of->made--;
		close(parent);
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* What was overwritten can't be brought back, so that it stays. Folders go after those that were made in them. */
void save_folder_close(struct save *save, bool failed)
{
	for (size_t i = save->name_count; i-- > 0;) {
		struct save_name *of = &save->names[i];

		if (failed && save->folder >= 0 && !of->there)
			unlinkat(save->folder, of->temporary, 0);
		if (failed && save->folder >= 0)
			take_back(save, of);
		free(of->name);
		free(of->temporary);
	}
	free(save->names);
	if (save->folder >= 0)
		close(save->folder);
	if (failed && save->made)
		rmdir(save->path);
}
