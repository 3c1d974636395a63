#include "extras.h"

#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

/* Opens the file again: what it is now counts. Returns 0, or -errno: -EBUSY if somebody has it open for writing. */
static int open_found(const struct extras *extras, const char *name, struct source_file *ret)
{
	struct source_file file = {.fd = extras_open(extras, name, READ)};
	int r;

	if (file.fd < 0)
		return file.fd;
	file.path = source_path(extras->source->folder.path, name);
	r = file.path && fstat(file.fd, &file.stat) == 0 ? 0 : -ENOMEM;
	/* A file that was passed is also the sender's. */
	if (r == 0 && S_ISREG(file.stat.st_mode) && !extras->roots->handed)
		r = lease_take(file.fd, file.path, &file.lease, extras->error);
	if (r < 0) {
		close(file.fd);
		free(file.path);
		return r;
	}
	*ret = file;
	return 0;
}

/* Looks at the beginning. Returns whether such a file may travel. */
static bool may_travel(struct extras *extras, const struct source_file *file, const char *name)
{
	struct format_head head = {.file_bytes = (uint64_t)file->stat.st_size};
	const struct foreign *foreign;

	head.count = head.file_bytes < sizeof(head.bytes) ? head.file_bytes : sizeof(head.bytes);
	if (source_file_read_at(file, head.bytes, head.count, 0, extras->error) < 0) {
		extras_leave(extras, LEFT_UNREAD, name, head.file_bytes, NULL);
		return false;
	}
	for (size_t i = 0; formats[i]; i++)
		if (formats[i]->begins(&head)) {
			extras_leave(extras, LEFT_WEIGHTS, name, head.file_bytes, NULL);
			return false;
		}
	foreign = foreign_beside(name, head.bytes, head.count);
	if (foreign)
		extras_leave(extras, foreign_is_pointer(foreign) ? LEFT_POINTER : LEFT_FORMAT, name,
			     head.file_bytes, foreign_is_pointer(foreign) ? NULL : foreign->what);
	return !foreign;
}

/* Reads a file within *left. A file that changes meanwhile uses up its share of *left: whoever writes into the folder can't keep the
 * loader reading. */
static int read_found(struct extras *extras, const struct extra_found *found, uint64_t *left)
{
	struct source *source = extras->source;
	struct source_file file;
	uint64_t bytes;
	char *data;
	int r = open_found(extras, found->name, &file);

	if (r < 0) {
		extras_leave(extras, LEFT_UNREAD, found->name, found->bytes,
			     r == -EBUSY ? "somebody has it open for writing" : strerror(-r));
		return 0;
	}
	bytes = (uint64_t)file.stat.st_size;
	if (!S_ISREG(file.stat.st_mode)) {
		extras_leave(extras, LEFT_SPECIAL, found->name, LEFT_SIZE_UNKNOWN, NULL);
	} else if (bytes > *left) {
		extras_leave(extras, LEFT_LARGE, found->name, bytes, NULL);
	} else if (may_travel(extras, &file, found->name)) {
		*left -= bytes;
		r = source_file_read(&file, bytes, &data, extras->error);
		if (r == 0)
			source->extras[source->extra_count++] =
				(struct source_extra){strdup(found->name), data, (size_t)bytes};
		else if (r != -ENOMEM)
			extras_leave(extras, LEFT_UNREAD, found->name, bytes, "it was written meanwhile");
		if (r == 0 && !source->extras[source->extra_count - 1].name)
			r = error_set(extras->error, -ENOMEM, NULL, "%s: out of memory", file.path);
	}
	source_file_close(&file);
	return r == -ENOMEM ? r : 0;
}

static int read_all(struct extras *extras)
{
	struct source *source = extras->source;
	uint64_t left = INDEX_FILES_BYTES_MAX;
	int r = 0;

	source->extras = calloc(EXTRA_FILES_MAX, sizeof(*source->extras));
	if (!source->extras)
		return error_set(extras->error, -ENOMEM, NULL, "%s: out of memory", source->folder.path);
	for (size_t i = 0; r == 0 && i < extras->found_count; i++) {
		const struct extra_found *found = &extras->found[i];

		if (found->bytes > left)
			extras_leave(extras, LEFT_LARGE, found->name, found->bytes, NULL);
		else if (source->extra_count == EXTRA_FILES_MAX)
			extras_leave(extras, LEFT_MANY, found->name, found->bytes, NULL);
		else
			r = read_found(extras, found, &left);
	}
	return r;
}

int source_read_extras(struct source *source, const struct roots *roots, struct error *error)
{
	struct extras *extras;
	int r;

	if (!source->folder.path)
		return 0;
	extras = calloc(1, sizeof(*extras));
	if (!extras)
		return error_set(error, -ENOMEM, NULL, "%s: out of memory", source->folder.path);
	*extras = (struct extras){
		.roots = roots, .source = source, .folder = source->folder.fd, .blobs = -1, .error = error};
	r = extras_find(extras);
	if (r == 0)
		r = read_all(extras);
	if (r == 0)
		extras_tell_left(extras);
	if (extras->blobs >= 0)
		close(extras->blobs);
	for (size_t i = 0; i < extras->found_count; i++)
		free(extras->found[i].name);
	free(extras->found);
	free(extras);
	return r;
}
