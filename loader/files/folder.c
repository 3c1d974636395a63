#include "folder.h"

#include "roots.h"
#include "source.h"
#include "../../base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_NAME "model" /* followed by the end of a format: the file that counts if there are several */
#define PIPELINE_NAME "model_index.json" /* of a diffusers pipeline */
#define NAMES_SHOWN 4 /* the names that an error lists */

/* ---- listing ------------------------------------------------------------- */

static bool folder_wants(const char *name)
{
	return name[0] != '.' && (format_of_name(name) || format_is_index(name) || foreign_name(name) ||
				  strcmp(name, PIPELINE_NAME) == 0);
}

static int folder_add(struct folder *folder, const char *name, struct error *error)
{
	return name_list_add(&folder->files, name)
		       ? 0
		       : error_set(error, -ENOMEM, NULL, "%s: out of memory", folder->path);
}

static int folder_failed(const struct folder *folder, struct error *error)
{
	return error_set(error, -errno, NULL, "%s: %s", folder->path, strerror(errno));
}

/* r: what the listing returned. */
static int folder_finish(struct folder *folder, int r, struct folder *ret)
{
	if (r < 0) {
		folder_clear(folder);
		return r;
	}
	name_list_sort(&folder->files);
	*ret = *folder;
	return 0;
}

int folder_list(const struct source_file *file, struct folder *ret, struct error *error)
{
	struct folder folder = {.path = file->path, .fd = file->fd};
	int fd = openat(file->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		r = folder_failed(&folder, error);
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (r == 0 && (errno = 0, entry = readdir(dir)))
		if (folder_wants(entry->d_name))
			r = folder_add(&folder, entry->d_name, error);
	if (r == 0 && errno)
		r = folder_failed(&folder, error);
	closedir(dir);
	return folder_finish(&folder, r, ret);
}

int folder_list_handed(const struct handed *handed, struct folder *ret, struct error *error)
{
	struct folder folder = {.path = handed->folder, .fd = -1};
	int r = 0;

	for (size_t i = 0; r == 0 && i < handed->count; i++)
		if (!strchr(handed->names[i], '/') && folder_wants(handed->names[i]))
			r = folder_add(&folder, handed->names[i], error);
	return folder_finish(&folder, r, ret);
}

void folder_clear(struct folder *folder)
{
	name_list_clear(&folder->files);
}

/* ---- choosing ------------------------------------------------------------ */

static bool folder_has(const struct folder *folder, const char *name)
{
	for (size_t i = 0; i < folder->files.count; i++)
		if (strcmp(folder->files.names[i], name) == 0)
			return true;
	return false;
}

/* Returns the folder's file "model" with this end, or NULL. */
static const char *find_model(const struct folder *folder, const char *end)
{
	for (size_t i = 0; i < folder->files.count; i++)
		if (format_name_ends(folder->files.names[i], end) &&
		    strlen(folder->files.names[i]) == strlen(MODEL_NAME) + strlen(end) &&
		    strncmp(folder->files.names[i], MODEL_NAME, strlen(MODEL_NAME)) == 0)
			return folder->files.names[i];
	return NULL;
}

static size_t folder_count(const struct folder *folder, const char *end, const char **ret_last)
{
	size_t count = 0;

	for (size_t i = 0; i < folder->files.count; i++)
		if (format_name_ends(folder->files.names[i], end)) {
			*ret_last = folder->files.names[i];
			count++;
		}
	return count;
}

static int folder_has_several(const struct folder *folder, const char *end, size_t count, const char *what,
			      const char *remedy, struct error *error)
{
	char list[TEXT_BYTES_MAX + 1] = "";
	size_t shown = 0, length = 0;

	for (size_t i = 0; i < folder->files.count && shown < NAMES_SHOWN; i++)
		if (format_name_ends(folder->files.names[i], end)) {
			int shown_bytes = text_shown(folder->files.names[i]);

			length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%.*s",
						   shown ? ", " : "", shown_bytes, folder->files.names[i]);
			shown++;
		}
	if (count > shown)
		snprintf(list + length, sizeof(list) - length, ", and %zu more", count - shown);
	return error_set(error, -EINVAL, remedy, "%s has %zu %s, and none is named " MODEL_NAME "%s: %s",
			 folder->path, count, what, end, list);
}

/* Makes the error for a folder without files of any format: it says what the folder has instead, if
 * that is known. */
static int nothing_found(const struct folder *folder, struct error *error)
{
	for (size_t i = 0; i < folder->files.count; i++) {
		const struct foreign *foreign = foreign_name(folder->files.names[i]);

		if (foreign)
			return error_set(error, -ENOTSUP, foreign->remedy,
					 "%s holds no " FORMAT_NAMES ", but %.*s, which is %s", folder->path,
					 text_shown(folder->files.names[i]), folder->files.names[i],
					 foreign->what);
	}
	if (folder_has(folder, PIPELINE_NAME))
		return error_set(error, -ENOENT, "name one of its folders, such as unet or vae",
				 "%s is a pipeline of diffusers: its models are in its folders", folder->path);
	return folder_explain(folder, error);
}

/* Fails with -ENOENT, and sets no error, if the folder has nothing of this format. */
static int choose_of(const struct folder *folder, const struct format *format, const char **ret_name,
		     char *ret_warning, struct error *error)
{
	const char *file = find_model(folder, format->file_end);
	const char *index = find_model(folder, format->index_end);
	size_t indices = folder_count(folder, format->index_end, ret_name);
	size_t files = indices > 0 ? 0 : folder_count(folder, format->file_end, ret_name);
	char what[64];

	if (file && index)
		snprintf(ret_warning, TEXT_BYTES_MAX + 1,
			 "%s has %s and %s: the load takes %s, as transformers does", folder->path, file, index,
			 file);
	if (file || index)
		*ret_name = file ? file : index;
	if (file || index || indices + files == 1)
		return 0;
	if (indices > 1)
		return folder_has_several(folder, format->index_end, indices, "indices of shards",
					  "keep each model in a folder of its own", error);
	if (files == 0)
		return -ENOENT;
	snprintf(what, sizeof(what), "%s files", format->name);
	return folder_has_several(folder, format->file_end, files, what,
				  "name one of them by its own path; shards need their index", error);
}

int folder_choose(const struct folder *folder, const char **ret_name, char *ret_warning, struct error *error)
{
	int r = -ENOENT;

	*ret_warning = '\0';
	for (size_t i = 0; r == -ENOENT && formats[i]; i++)
		r = choose_of(folder, formats[i], ret_name, ret_warning, error);
	return r == -ENOENT ? nothing_found(folder, error) : r;
}
