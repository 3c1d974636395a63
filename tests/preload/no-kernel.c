/* LD_PRELOAD: a kernel, or a sandbox, without what newer kernels have: pidfd_open, SO_PEERPIDFD, openat2, memfds. */
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* gpuwmctl calls only these two by their numbers. */
EXPORT long syscall(long number, ...)
{
	(void)number;
	errno = ENOSYS;
	return -1;
}

EXPORT int memfd_create(const char *name, unsigned flags)
{
	(void)name;
	(void)flags;
	errno = EPERM;
	return -1;
}

EXPORT int getsockopt(int sock, int level, int name, void *restrict value, socklen_t *restrict size)
{
	(void)sock;
	(void)level;
	(void)name;
	(void)value;
	(void)size;
	errno = ENOPROTOOPT;
	return -1;
}
