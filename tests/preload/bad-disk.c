/* LD_PRELOAD: a disk that fails, or a file system that hangs. Below the folder BAD_DISK_FOLDER, the call that the file BAD_DISK_FAULT names
 * fails with the error number and after so many bytes of writes as it says ("pwrite 28 100"); where there is no such file, nothing fails.
 * As long as it says "stall", all these calls wait, and so do those that open or look at what lies there: the server of the file system
 * does not answer. "stall fsync": this call alone. "stall pread 3": this one, from the third on that the process makes there. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_ullong written; /* below the folder, while the file names a call */

static bool begins_so(const char *path)
{
	const char *folder = getenv("BAD_DISK_FOLDER");

	return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static bool is_below(int fd)
{
	char link[64], path[4096];
	ssize_t bytes;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	bytes = readlink(link, path, sizeof path - 1);
	if (bytes < 0)
		return false;
	path[bytes] = '\0';
	return begins_so(path);
}

/* What the file of the fault says; "": there is none. */
static void fault_read(char text[64])
{
	const char *name = getenv("BAD_DISK_FAULT");
	int file = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t bytes = file >= 0 ? read(file, text, 63) : 0;

	text[bytes > 0 ? bytes : 0] = '\0';
	if (file >= 0)
		close(file);
}

static void wait_for_answer(const char *call)
{
	static atomic_uint calls; /* of the one that stalls */
	char text[64], what[32] = "";
	bool is_counted = false;
	unsigned first = 0;

	for (;;) {
		fault_read(text);
		if (strncmp(text, "stall", 5) != 0 ||
		    (sscanf(text, "stall %31s %u", what, &first) >= 1 && strcmp(what, call) != 0))
			return;
		if (!is_counted && ++calls < first)
			return;
		is_counted = true;
		usleep(2000);
	}
}

/* The bytes that may still be written before this call fails, with errno set; -1: it does not. */
static long long room(const char *call, int fd)
{
	char text[64], what[32];
	unsigned long long after = 0;
	int number = 0;

	if (!is_below(fd))
		return -1;
	wait_for_answer(call);
	fault_read(text);
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

/* ---- looks, which only hang ---- */

EXPORT int fstat(int fd, struct stat *ret)
{
	if (is_below(fd))
		wait_for_answer("fstat");
	return (int)syscall(SYS_newfstatat, fd, "", ret, AT_EMPTY_PATH);
}

EXPORT int stat(const char *path, struct stat *ret)
{
	if (begins_so(path))
		wait_for_answer("stat");
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, ret, 0);
}

EXPORT int open(const char *path, int flags, ...)
{
	va_list arguments;
	int mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
	va_end(arguments);
	if (begins_so(path))
		wait_for_answer("open");
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
	va_list arguments;
	int mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
	va_end(arguments);
	if (is_below(folder))
		wait_for_answer("openat");
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}

/* Who closes a folder asks no server. */
EXPORT int close(int fd)
{
	struct stat st;

	if (is_below(fd) && syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) == 0 && S_ISREG(st.st_mode))
		wait_for_answer("close");
	return (int)syscall(SYS_close, fd);
}

#define READ_AT(name, offset)                                                                                  \
	EXPORT ssize_t name(int fd, void *data, size_t bytes, offset at)                                       \
	{                                                                                                      \
		if (is_below(fd))                                                                              \
			wait_for_answer("pread");                                                              \
		return syscall(SYS_pread64, fd, data, bytes, at);                                              \
	}
READ_AT(pread, off_t)
READ_AT(pread64, off64_t)

EXPORT int mkdir(const char *path, mode_t mode)
{
	if (begins_so(path))
		wait_for_answer("mkdir");
	return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
	if (is_below(fd))
		wait_for_answer("write");
	return syscall(SYS_write, fd, data, bytes);
}
