#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *source_path(const char *folder, const char *name)
{
	char *path;
	size_t length = strlen(folder);

	return asprintf(&path, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name) < 0
		       ? NULL
		       : path;
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	case S_IFCHR:
	case S_IFBLK:
		return "a device";
	default:
		return "something else";
	}
}

/* A file that came as a descriptor is also the sender's: what the loader does to it, such as taking a lease, would reach the sender.
 * So the loader opens the file again. */
static void file_make_own(struct source_file *file)
{
	char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0) {
		file->lease.unseen = "they were passed, and the loader may not open them by itself";
		return;
	}
	close(file->fd);
	file->fd = fd;
}

static int file_watch(const struct roots *roots, struct source_file *file, struct error *error)
{
	if (!S_ISREG(file->stat.st_mode))
		return 0;
	if (roots->handed)
		file_make_own(file);
	return file->lease.unseen ? 0 : lease_take(file->fd, file->path, &file->lease, error);
}

int source_file_open(const struct roots *roots, const char *path, struct source_file *ret, struct error *error)
{
	struct source_file file = {.fd = -1};
	int r = beneath_open(roots, path, &file.fd, error);

	if (r < 0)
		return r;
	file.path = strdup(path);
	if (!file.path)
		r = error_set(error, -ENOMEM, NULL, "%s: out of memory", path);
	else if (fstat(file.fd, &file.stat) < 0)
		r = error_set(error, -errno, NULL, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(file.stat.st_mode) && !S_ISDIR(file.stat.st_mode))
		r = error_set(error, -EINVAL, "a source is a regular file or a folder", "%s is %s", path,
			      kind_of(file.stat.st_mode));
	else
		r = file_watch(roots, &file, error);
	if (r < 0) {
		source_file_close(&file);
		return r;
	}
	*ret = file;
	return 0;
}

void source_file_close(struct source_file *file)
{
	format_content_clear(&file->content);
	lease_give_back(&file->lease, file->fd);
	free(file->path);
	if (file->path || file->fd > 0)
		close(file->fd);
	*file = (struct source_file){.fd = -1};
}

/* The error says where the file ends now: another reader may have met the end at a later range
 * first. */
static int truncated(const struct source_file *file, struct error *error)
{
	struct stat now = {0};

	fstat(file->fd, &now);
	return error_set(error, -EIO, "load it again when nobody writes it",
			 "%s was truncated while it was read: it ended at byte %lld, it had %lld", file->path,
			 (long long)now.st_size, (long long)file->stat.st_size);
}

int source_file_read_at(const struct source_file *file, void *to, size_t bytes, uint64_t offset,
			struct error *error)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(file->fd, (char *)to + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_set(error, -EIO, NULL, "%s: reading at byte %" PRIu64 " failed: %s",
					 file->path, offset + done, strerror(errno));
		if (n == 0)
			return truncated(file, error);
		done += (size_t)n;
	}
	return 0;
}

int source_file_read(const struct source_file *file, uint64_t limit, char **ret_data, struct error *error)
{
	uint64_t bytes = (uint64_t)file->stat.st_size;
	char *data;
	int r;

	if (!S_ISREG(file->stat.st_mode))
		return error_set(error, -EINVAL, NULL, "%s is no regular file", file->path);
	if (bytes > limit)
		return error_set(error, -EFBIG, NULL, "%s has %" PRIu64 " bytes, above the limit of %" PRIu64,
				 file->path, bytes, limit);
	data = malloc(bytes + 1);
	if (!data)
		return error_set(error, -ENOMEM, NULL, "%s: out of memory", file->path);
	r = source_file_read_at(file, data, bytes, 0, error);
	if (r == 0)
		r = source_file_unchanged(file, error);
	if (r < 0) {
		free(data);
		return r;
	}
	data[bytes] = '\0';
	*ret_data = data;
	return 0;
}

int source_file_parse(struct source_file *file, struct error *error)
{
	if (!S_ISREG(file->stat.st_mode))
		return error_set(error, -EINVAL, NULL, "%s is no regular file", file->path);
	/* This keeps readahead from fetching more than the header: copy/reader.h reads the rest past the
	 * cache. */
	posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
	return format_read(file, &file->content, error);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static int file_check_lease(const struct source_file *file, struct error *error)
{
	if (lease_holds(&file->lease, file->fd))
		return 0;
	return error_set(error, -EIO, "load it again when nobody writes it",
			 "%s was opened for writing while it was read", file->path);
}

int source_check_leases(const struct source *source, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < source->file_count; i++)
		r = file_check_lease(&source->files[i], error);
	return r;
}

void source_give_back_leases(struct source *source)
{
	for (size_t i = 0; i < source->file_count; i++)
		lease_give_back(&source->files[i].lease, source->files[i].fd);
}

int source_file_unchanged(const struct source_file *file, struct error *error)
{
	struct stat now;

	if (file_check_lease(file, error) < 0)
		return -EIO;
	if (fstat(file->fd, &now) < 0)
		return error_set(error, -EIO, NULL, "%s: %s", file->path, strerror(errno));
	if (now.st_size != file->stat.st_size)
		return error_set(error, -EIO, "load it again when nobody writes it",
				 "%s was changed while it was read: it had %lld bytes, now %lld", file->path,
				 (long long)file->stat.st_size, (long long)now.st_size);
	if (!same_time(&now.st_mtim, &file->stat.st_mtim))
		return error_set(error, -EIO, "load it again when nobody writes it",
				 "%s was written while it was read", file->path);
	if (now.st_nlink == 0 && file->stat.st_nlink > 0)
		return error_set(error, -EIO, "load it again when nobody replaces it",
				 "%s was removed or replaced while it was read", file->path);
	if (!same_time(&now.st_ctim, &file->stat.st_ctim))
		return error_set(
			error, -EIO, "load it again when nobody changes it",
			"%s was written while it was read, or its times, mode, owner or links were changed",
			file->path);
	return 0;
}
