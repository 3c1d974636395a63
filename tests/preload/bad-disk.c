/* LD_PRELOAD: a disk that fails. Below the folder BAD_DISK_FOLDER, the call that the file BAD_DISK_FAULT names fails with the error number
 * and after so many bytes of writes as it says ("pwrite 28 100"); where there is no such file, nothing fails. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_ullong written; /* below the folder, while the file names a call */

static bool is_below(int fd)
{
	const char *folder = getenv("BAD_DISK_FOLDER");
	char link[64], path[4096];
	ssize_t bytes;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	bytes = folder ? readlink(link, path, sizeof path - 1) : -1;
	if (bytes < 0)
		return false;
	path[bytes] = '\0';
	return strncmp(path, folder, strlen(folder)) == 0;
}

/* The bytes that may still be written before this call fails, with errno set; -1: it does not. */
static long long room(const char *call, int fd)
{
	const char *name = getenv("BAD_DISK_FAULT");
	char text[64] = "", what[32];
	int file = name && is_below(fd) ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
	unsigned long long after = 0;
	int number = 0;

	if (file < 0)
		return -1;
	if (read(file, text, sizeof text - 1) < 0)
		text[0] = '\0';
	close(file);
	if (sscanf(text, "%31s %d %llu", what, &number, &after) < 2 || strcmp(what, call) != 0)
		return -1;
	errno = number;
	return after > written ? (long long)(after - written) : 0;
}

static void *find(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* As a disk that fills: what fits is written, and the next call fails. */
#define WRITE_AT(name, offset)                                                                                 \
	EXPORT ssize_t name(int fd, const void *data, size_t bytes, offset at)                                 \
	{                                                                                                      \
		long long left = room("pwrite", fd);                                                           \
		ssize_t done;                                                                                  \
                                                                                                               \
		if (left == 0 && bytes > 0)                                                                    \
			return -1;                                                                             \
		if (left > 0 && bytes > (size_t)left)                                                          \
			bytes = (size_t)left;                                                                  \
		done = syscall(SYS_pwrite64, fd, data, bytes, at);                                             \
		if (left > 0 && done > 0)                                                                      \
			written += (unsigned long long)done;                                                   \
		return done;                                                                                   \
	}
WRITE_AT(pwrite, off_t)
WRITE_AT(pwrite64, off64_t)

EXPORT int fsync(int fd)
{
	return room("fsync", fd) >= 0 ? -1 : (int)syscall(SYS_fsync, fd);
}

EXPORT int renameat(int from, const char *path, int to, const char *name)
{
	static int (*real)(int, const char *, int, const char *);

	if (room("renameat", to) >= 0)
		return -1;
	if (!real)
		*(void **)&real = find("renameat");
	return real(from, path, to, name);
}

EXPORT int unlinkat(int folder, const char *path, int flags)
{
	return room("unlinkat", folder) >= 0 ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
