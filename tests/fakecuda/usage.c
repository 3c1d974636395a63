/* Device memory is memfds whose names tell the run, the device and the bytes:
 * what is in use is what /proc shows open, however its maker ended. A mapping
 * keeps its descriptor too, so the descriptors tell all. */
#include "machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 128
#define LINK_PREFIX "/memfd:fakecuda-"

struct file {
	uint64_t id; /* random, one a memfd */
	uint64_t bytes;
};

struct files {
	int device;
	struct file *list;
	size_t count, room;
};

/* "/memfd:fakecuda-RUN-DEVICE-BYTES-ID" and whatever follows. */
static bool name_parse(const char *text, int *ret_device, struct file *ret_file)
{
	const char *run = machine()->run;
	unsigned long long bytes, id;
	size_t length = strlen(run);
	int device;

	if (strncmp(text, LINK_PREFIX, strlen(LINK_PREFIX)) != 0)
		return false;
	text += strlen(LINK_PREFIX);
	if (strncmp(text, run, length) != 0 ||
	    sscanf(text + length, "-%d-%llu-%16llx", &device, &bytes, &id) != 3)
		return false;
	*ret_device = device;
	*ret_file = (struct file){.id = id, .bytes = bytes};
	return true;
}

static void files_note(struct files *files, const char *text)
{
	struct file file;
	int device;

	if (!name_parse(text, &device, &file) || device != files->device)
		return;
	if (files->count == files->room) {
		files->room = files->room ? 2 * files->room : 64;
		files->list = realloc(files->list, files->room * sizeof(*files->list));
		if (!files->list)
			abort();
	}
	files->list[files->count++] = file;
}

static void note_descriptors(struct files *files, const char *process)
{
	char path[300], text[NAME_BYTES + 32];
	struct dirent *entry;
	ssize_t length;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%s/fd", process);
	folder = opendir(path);
	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		length = readlinkat(dirfd(folder), entry->d_name, text, sizeof(text) - 1);
		if (length > 0) {
			text[length] = 0;
			files_note(files, text);
		}
	}
	closedir(folder);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = ((const struct file *)a)->id, y = ((const struct file *)b)->id;

	return x < y ? -1 : x > y;
}

uint64_t memory_used(int device)
{
	struct files files = {.device = device};
	struct dirent *entry;
	uint64_t used = 0;
	DIR *proc = opendir("/proc");

	if (!proc)
		abort();
	while ((entry = readdir(proc))) {
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			note_descriptors(&files, entry->d_name);
	}
	closedir(proc);
	if (files.count)
		qsort(files.list, files.count, sizeof(*files.list), compare);
	for (size_t i = 0; i < files.count; i++)
		if (i == 0 || files.list[i].id != files.list[i - 1].id)
			used += files.list[i].bytes;
	free(files.list);
	return used;
}

static int fill(int fd, uint64_t bytes)
{
	uint8_t block[65536];

	memset(block, DIRTY_BYTE, sizeof(block));
	for (uint64_t done = 0; done < bytes; done += sizeof(block))
		if (pwrite(fd, block, sizeof(block), (off_t)done) != (ssize_t)sizeof(block))
			return -errno;
	return 0;
}

int memory_file_create(int device, uint64_t bytes)
{
	char name[NAME_BYTES];
	unsigned long long id;
	int fd, r = 0;

	/* Before it exists, so that what can't fit costs nothing. */
	if (bytes > machine()->memory)
		return -ENOSPC;
	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return -errno;
	snprintf(name, sizeof(name), "fakecuda-%s-%d-%llu-%016llx", machine()->run, device,
		 (unsigned long long)bytes, id);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Counted with the new one in it: two makers at the same moment may both be refused, but
	 * the device is never overcommitted. */
	if (ftruncate(fd, (off_t)bytes) < 0)
		r = -errno;
	else if (memory_used(device) > machine()->memory)
		r = -ENOSPC;
	else if (machine()->dirty)
		r = fill(fd, bytes);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

bool memory_file_of(int fd, int *ret_device, uint64_t *ret_bytes)
{
	char path[64], text[NAME_BYTES + 32];
	struct file file;
	struct stat status;
	ssize_t length;
	int device;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, text, sizeof(text) - 1);
	if (length < 0)
		return false;
	text[length] = 0;
	if (!name_parse(text, &device, &file) || fstat(fd, &status) < 0 ||
	    (uint64_t)status.st_size != file.bytes)
		return false;
	*ret_device = device;
	*ret_bytes = file.bytes;
	return true;
}
