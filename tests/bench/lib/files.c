#include "files.h"

#include "../bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void add(struct files *files, const char *path)
{
	struct stat st;

	if (files->count == FILES_MAX)
		DIE("more than %d files", FILES_MAX);
	if (stat(path, &st) < 0)
		DIE("%s: %s", path, strerror(errno));
	snprintf(files->file[files->count].path, sizeof files->file[0].path, "%s", path);
	files->file[files->count++].bytes = (uint64_t)st.st_size;
	files->bytes += (uint64_t)st.st_size;
}

static int is_weights(const struct dirent *entry)
{
	const char *end = strrchr(entry->d_name, '.');

	return end && strcmp(end, ".safetensors") == 0;
}

void files_of(const char *source, struct files *ret)
{
	struct dirent **entries;
	int count = scandir(source, &entries, is_weights, alphasort);

	*ret = (struct files){0};
	if (count < 0)
		add(ret, source);
	for (int i = 0; i < count; i++) {
		char path[512];

		snprintf(path, sizeof path, "%s/%s", source, entries[i]->d_name);
		add(ret, path);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	if (ret->bytes == 0)
		DIE("%s: no weights", source);
}

static int open_file(const struct files *files, size_t i)
{
	int fd = open(files->file[i].path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		DIE("%s: %s", files->file[i].path, strerror(errno));
	return fd;
}

static uint64_t pages_cached(const struct files *files, size_t i)
{
	size_t pages = (files->file[i].bytes + 4095) / 4096;
	int fd = open_file(files, i);
	void *area = mmap(NULL, files->file[i].bytes, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char *there = malloc(pages);
	uint64_t count = 0;

	if (area == MAP_FAILED || !there || mincore(area, files->file[i].bytes, there) < 0)
		DIE("%s: %s", files->file[i].path, strerror(errno));
	for (size_t p = 0; p < pages; p++)
		count += there[p] & 1;
	free(there);
	munmap(area, files->file[i].bytes);
	close(fd);
	return count;
}

double files_cached(const struct files *files)
{
	uint64_t count = 0;

	for (size_t i = 0; i < files->count; i++)
		count += pages_cached(files, i);
	return (double)count * 4096 / (double)files->bytes;
}

void files_evict(const struct files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		int fd = open_file(files, i), r;

		if (fsync(fd) < 0)
			DIE("%s: %s", files->file[i].path, strerror(errno));
		r = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (r != 0)
			DIE("%s: %s", files->file[i].path, strerror(r));
		close(fd);
	}
}

void files_warm(const struct files *files, double share)
{
	const size_t chunk = (size_t)8 << 20;
	char *buffer = malloc(chunk);

	for (size_t i = 0; i < files->count && buffer; i++) {
		uint64_t end = (uint64_t)((double)files->file[i].bytes * share);
		int fd = open_file(files, i);
		ssize_t r = 1;

		/* No reading ahead beyond the share. */
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
		for (uint64_t at = 0; at < end && r > 0; at += (uint64_t)r)
			r = pread(fd, buffer, end - at < chunk ? end - at : chunk, (off_t)at);
		if (r < 0)
			DIE("%s: %s", files->file[i].path, strerror(errno));
		close(fd);
	}
	free(buffer);
}

void files_hold(const struct files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		int fd = open_file(files, i);
		void *area = mmap(NULL, files->file[i].bytes, PROT_READ, MAP_SHARED, fd, 0);

		if (area == MAP_FAILED)
			DIE("%s: %s", files->file[i].path, strerror(errno));
		close(fd);
		if (mlock(area, files->file[i].bytes) == 0)
			continue;
		printf("    not locked in the page cache (see ulimit -l): %s: %s\n", files->file[i].path,
		       strerror(errno));
		return;
	}
}

struct range files_chunk(const struct files *files, uint64_t number, uint64_t chunk)
{
	struct range range = {0};

	for (size_t i = 0; i < files->count; i++) {
		uint64_t chunks = (files->file[i].bytes + chunk - 1) / chunk;

		if (number < chunks) {
			range.file = i;
			range.offset = number * chunk;
			range.bytes = files->file[i].bytes - range.offset;
			if (range.bytes > chunk)
				range.bytes = chunk;
			break;
		}
		number -= chunks;
	}
	return range;
}
