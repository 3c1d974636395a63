/* Device memory is memfds whose names tell the run, the device and the bytes.
 * The maker of a memfd locks a range of it, as long as the memory, which begins
 * at a number of the run and the device. The lock belongs to the open file
 * description: it lasts as long as a descriptor of any process, a mapping or a
 * packet in a socket has the memory, however its maker ended. What is in use is
 * the sum of these locks in /proc/locks: one file to read, however many
 * processes and descriptors the machine has. */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 128
#define LINK_PREFIX "/memfd:fakecuda-"
#define PAGE_BYTES 4096
#define STARTS (1ull << 61) /* a range begins below this number, so that its end is no negative off_t */

struct range {
	uint64_t inode, bytes;
};

struct ranges {
	struct range *list;
	size_t count, room;
};

/* "/memfd:fakecuda-RUN-DEVICE-BYTES" and whatever follows. */
static bool name_parse(const char *text, int *ret_device, uint64_t *ret_bytes)
{
	const char *run = machine()->run;
	unsigned long long bytes;
	size_t length = strlen(run);
	int device;

	if (strncmp(text, LINK_PREFIX, strlen(LINK_PREFIX)) != 0)
		return false;
	text += strlen(LINK_PREFIX);
	if (strncmp(text, run, length) != 0 || sscanf(text + length, "-%d-%llu", &device, &bytes) != 2)
		return false;
	*ret_device = device;
	*ret_bytes = bytes;
	return true;
}

/* Where the locked ranges of the device's memory begin: a number that no other run has (FNV-1a). */
static uint64_t range_start(int device)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (const char *c = machine()->run; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
	return hash % (STARTS / DEVICES_MAX) * DEVICES_MAX + (uint64_t)device;
}

static int range_lock(int fd, int device, uint64_t bytes)
{
	struct flock range = {.l_type = F_RDLCK,
			      .l_whence = SEEK_SET,
			      .l_start = (off_t)range_start(device),
			      .l_len = (off_t)bytes};

	return fcntl(fd, F_OFD_SETLK, &range) < 0 ? -errno : 0;
}

/* All of /proc/locks; free() it. The first read asks for `first` bytes, the others for a page. */
static char *locks_read(size_t first)
{
	int fd = open("/proc/locks", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	char *text = NULL;
	ssize_t got;

	if (fd < 0) {
		perror("fakecuda: /proc/locks can't be read");
		abort();
	}
	do {
		text = realloc(text, length + PAGE_BYTES + 1);
		if (!text)
			abort();
		got = read(fd, text + length, length ? PAGE_BYTES : first);
		length += got > 0 ? (size_t)got : 0;
	} while (got > 0);
	close(fd);
	text[length] = 0;
	return text;
}

static void ranges_add(struct ranges *ranges, uint64_t inode, uint64_t bytes)
{
	if (ranges->count == ranges->room) {
		ranges->room = ranges->room ? 2 * ranges->room : 64;
		ranges->list = realloc(ranges->list, ranges->room * sizeof(*ranges->list));
		if (!ranges->list)
			abort();
	}
	ranges->list[ranges->count++] = (struct range){.inode = inode, .bytes = bytes};
}

/* Adds those that begin at `start`. */
static void ranges_find(struct ranges *ranges, uint64_t start, char *locks)
{
	unsigned long long inode, first, last;
	char *rest;

	for (char *line = strtok_r(locks, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (sscanf(line, "%*d: OFDLCK %*s %*s %*d %*x:%*x:%llu %llu %llu", &inode, &first, &last) ==
			    3 &&
		    first == start)
			ranges_add(ranges, inode, last - first + 1);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = ((const struct range *)a)->inode, y = ((const struct range *)b)->inode;

	return x < y ? -1 : x > y;
}

/* For each read the kernel makes a page of /proc/locks anew, and counts lines to find where that page
 * begins. If a lock comes or goes between two reads, the line at that place is there twice, or missing.
 * So the file is read once more with its pages beginning elsewhere. What either reading shows counts once. */
uint64_t memory_used(int device)
{
	const size_t firsts[] = {PAGE_BYTES, PAGE_BYTES / 2};
	struct ranges ranges = {0};
	uint64_t used = 0;

	for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
		char *locks = locks_read(firsts[i]);

		ranges_find(&ranges, range_start(device), locks);
		free(locks);
	}
	if (ranges.count)
		qsort(ranges.list, ranges.count, sizeof(*ranges.list), compare);
	for (size_t i = 0; i < ranges.count; i++)
		if (i == 0 || ranges.list[i].inode != ranges.list[i - 1].inode)
			used += ranges.list[i].bytes;
	free(ranges.list);
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
	int fd, r;

	/* Before it exists, so that what can't fit costs nothing. */
	if (bytes > machine()->memory)
		return -ENOSPC;
	snprintf(name, sizeof(name), "fakecuda-%s-%d-%llu", machine()->run, device, (unsigned long long)bytes);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = ftruncate(fd, (off_t)bytes) < 0 ? -errno : range_lock(fd, device, bytes);
	/* Counted with the new one in it: two makers at the same moment may both be refused, but
	 * the device is never overcommitted. */
	if (r == 0 && memory_used(device) > machine()->memory)
		r = -ENOSPC;
	if (r == 0 && machine()->dirty)
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
	struct stat status;
	uint64_t bytes;
	ssize_t length;
	int device;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, text, sizeof(text) - 1);
	if (length < 0)
		return false;
	text[length] = 0;
	if (!name_parse(text, &device, &bytes) || fstat(fd, &status) < 0 || (uint64_t)status.st_size != bytes)
		return false;
	*ret_device = device;
	*ret_bytes = bytes;
	return true;
}
