/* LD_PRELOAD: lets one call of a program fail, as the page that FAULTS_CONTROL names says: tests/faults/control.h. */
#include "../faults/control.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static struct control *control; /* NULL: nothing fails */
static enum program program;

/* ---- telling ---------------------------------------------------------- */

static void tell_frame(char *ret, void *address)
{
	const char *slash;
	Dl_info info;

	if (!dladdr(address, &info) || !info.dli_fname) {
		snprintf(ret, FRAME_BYTES, "%p", address);
		return;
	}
	slash = strrchr(info.dli_fname, '/');
	if (slash)
		info.dli_fname = slash + 1;
	if (info.dli_sname)
		snprintf(ret, FRAME_BYTES, "%s:%s", info.dli_fname, info.dli_sname);
	else
		snprintf(ret, FRAME_BYTES, "%s+%#zx", info.dli_fname,
			 (size_t)((char *)address - (char *)info.dli_fbase - 1));
}

static void tell_trace(struct trace *ret)
{
	void *addresses[FRAMES_MAX];
	int count = backtrace(addresses, FRAMES_MAX);

	for (int i = 0; i < count; i++)
		tell_frame(ret->frames[i], addresses[i]);
	if (count < FRAMES_MAX)
		ret->frames[count][0] = '\0';
}

static void on_crash(int number)
{
	unsigned i = atomic_fetch_add(&control->crashes, 1);

	if (i < CRASHES_MAX) {
		control->crash[i].program = program;
		control->crash[i].signal = number;
		tell_trace(&control->crash[i].where);
	}
	raise(number); /* as it would have been without us: SA_RESETHAND */
}

static void watch_crashes(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
	const struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};

	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaction(signals[i], &action, NULL);
}

__attribute__((constructor)) static void begin(void)
{
	static const char *const names[] = {PROGRAM_NAMES};
	const char *path = getenv(FAULTS_CONTROL);
	void *addresses[1], *page;
	int fd;

	while (program < PROGRAM_COUNT && strcmp(program_invocation_short_name, names[program]) != 0)
		program++;
	if (!path || program == PROGRAM_COUNT)
		return;
	backtrace(addresses, 1); /* it loads a library the first time */
	fd = open(path, O_RDWR | O_CLOEXEC);
	page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		abort();
	control = page;
	watch_crashes();
}

/* ---- failing ---------------------------------------------------------- */

/* In getgrnam(3) and getpwnam(3). Where glibc's NSS and what it loads have no memory, they end the process themselves. */
static __thread bool in_nss __attribute__((tls_model("initial-exec")));

/* A thread that blocks signals is interrupted by none. */
static bool is_possible(int error)
{
	sigset_t blocked;

	return error != EINTR || pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 ||
	       !sigismember(&blocked, SIGCHLD);
}

static bool fails(enum call call, unsigned kind)
{
	if (in_nss || !control || !atomic_load(&control->counting))
		return false;
	atomic_fetch_add(&control->counts[program][call][kind], 1);
	if (!atomic_load(&control->armed) || control->call != call || control->program != program ||
	    !(control->kinds & 1u << kind) || !is_possible(control->error) ||
	    atomic_fetch_add(&control->seen, 1) + 1 != control->number)
		return false;
	tell_trace(&control->where);
	atomic_store(&control->struck, true);
	errno = control->error;
	return true;
}

/* What goes to a log is spared: it is what the test reads. */
static bool fails_on(enum call call, int fd)
{
	struct stat st;

	if (!control || fd == STDOUT_FILENO || fd == STDERR_FILENO || syscall(SYS_fstat, fd, &st) < 0)
		return false;
	return fails(call, S_ISREG(st.st_mode) ? KIND_FILE : KIND_STREAM);
}

/* Before each line of a log its stream is asked whether it takes it. As a number and in a function of its own, since gcc
 * holds that poll(2) only writes there. */
__attribute__((noinline)) static bool polls_log(uintptr_t fds, nfds_t count)
{
	return count == 1 && ((const struct pollfd *)fds)->fd == STDERR_FILENO;
}

static void *find(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* `type name parameters` returns `otherwise` where `condition` holds, and is libc's function else. */
#define WRAP(type, name, parameters, arguments, condition, otherwise)                                          \
	EXPORT type name parameters                                                                            \
	{                                                                                                      \
		static type(*real) parameters;                                                                 \
                                                                                                               \
		if (condition)                                                                                 \
			return otherwise;                                                                      \
		if (!real)                                                                                     \
			*(void **)&real = find(#name);                                                         \
		return real arguments;                                                                         \
	}

WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol),
     fails(CALL_SOCKET, KIND_OTHER), -1)
WRAP(int, socketpair, (int domain, int type, int protocol, int ret[2]), (domain, type, protocol, ret),
     fails(CALL_SOCKETPAIR, KIND_OTHER), -1)
WRAP(int, accept4, (int fd, struct sockaddr *restrict a, socklen_t *restrict n, int flags), (fd, a, n, flags),
     fails(CALL_ACCEPT, KIND_OTHER), -1)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), fails(CALL_CONNECT, KIND_OTHER),
     -1)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), fails(CALL_BIND, KIND_OTHER), -1)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags),
     fails(CALL_SENDMSG, KIND_OTHER), -1)
WRAP(ssize_t, sendto,
     (int fd, const void *data, size_t n, int flags, const struct sockaddr *a, socklen_t bytes),
     (fd, data, n, flags, a, bytes), fails(CALL_SENDTO, KIND_OTHER), -1)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), fails(CALL_RECVMSG, KIND_OTHER),
     -1)
WRAP(ssize_t, recv, (int fd, void *data, size_t n, int flags), (fd, data, n, flags),
     fails(CALL_RECV, KIND_OTHER), -1)
WRAP(int, getsockopt, (int fd, int level, int name, void *restrict v, socklen_t *restrict n),
     (fd, level, name, v, n), fails(CALL_GETSOCKOPT, KIND_OTHER), -1)
WRAP(int, setsockopt, (int fd, int level, int name, const void *v, socklen_t n), (fd, level, name, v, n),
     fails(CALL_SETSOCKOPT, KIND_OTHER), -1)
WRAP(int, getsockname, (int fd, struct sockaddr *restrict a, socklen_t *restrict n), (fd, a, n),
     fails(CALL_GETSOCKNAME, KIND_OTHER), -1)

WRAP(ssize_t, read, (int fd, void *data, size_t n), (fd, data, n), fails_on(CALL_READ, fd), -1)
WRAP(ssize_t, pread, (int fd, void *data, size_t n, off_t at), (fd, data, n, at), fails_on(CALL_PREAD, fd), -1)
WRAP(ssize_t, pread64, (int fd, void *data, size_t n, off64_t at), (fd, data, n, at), fails_on(CALL_PREAD, fd),
     -1)
WRAP(ssize_t, preadv2, (int fd, const struct iovec *parts, int n, off_t at, int flags),
     (fd, parts, n, at, flags), fails_on(CALL_PREADV, fd), -1)
WRAP(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n), fails_on(CALL_WRITE, fd), -1)
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at),
     fails_on(CALL_PWRITE, fd), -1)
WRAP(ssize_t, pwritev, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at),
     fails_on(CALL_PWRITEV, fd), -1)

WRAP(FILE *, fopen, (const char *restrict path, const char *restrict mode), (path, mode),
     fails(CALL_FOPEN, KIND_OTHER), NULL)
WRAP(FILE *, fopen64, (const char *restrict path, const char *restrict mode), (path, mode),
     fails(CALL_FOPEN, KIND_OTHER), NULL)
WRAP(DIR *, opendir, (const char *path), (path), fails(CALL_OPENDIR, KIND_OTHER), NULL)
WRAP(struct dirent *, readdir, (DIR * folder), (folder), fails(CALL_READDIR, KIND_OTHER), NULL)
WRAP(struct dirent64 *, readdir64, (DIR * folder), (folder), fails(CALL_READDIR, KIND_OTHER), NULL)
WRAP(int, stat, (const char *restrict path, struct stat *restrict ret), (path, ret),
     fails(CALL_STAT, KIND_OTHER), -1)
WRAP(int, stat64, (const char *restrict path, struct stat64 *restrict ret), (path, ret),
     fails(CALL_STAT, KIND_OTHER), -1)
WRAP(int, lstat, (const char *restrict path, struct stat *restrict ret), (path, ret),
     fails(CALL_LSTAT, KIND_OTHER), -1)
WRAP(int, fstat, (int fd, struct stat *ret), (fd, ret), fails_on(CALL_FSTAT, fd), -1)
WRAP(int, fstat64, (int fd, struct stat64 *ret), (fd, ret), fails_on(CALL_FSTAT, fd), -1)
WRAP(int, statx, (int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict ret),
     (fd, path, flags, mask, ret), fails(CALL_STATX, KIND_OTHER), -1)
WRAP(ssize_t, readlink, (const char *restrict path, char *restrict ret, size_t n), (path, ret, n),
     fails(CALL_READLINK, KIND_OTHER), -1)
WRAP(int, dup2, (int from, int to), (from, to), fails(CALL_DUP, KIND_OTHER), -1)
WRAP(int, dup3, (int from, int to, int flags), (from, to, flags), fails(CALL_DUP, KIND_OTHER), -1)
WRAP(void *, mmap, (void *at, size_t n, int protection, int flags, int fd, off_t offset),
     (at, n, protection, flags, fd, offset), fails(CALL_MMAP, KIND_OTHER), MAP_FAILED)
WRAP(void *, mmap64, (void *at, size_t n, int protection, int flags, int fd, off64_t offset),
     (at, n, protection, flags, fd, offset), fails(CALL_MMAP, KIND_OTHER), MAP_FAILED)
WRAP(int, madvise, (void *at, size_t n, int advice), (at, n, advice), fails(CALL_MADVISE, KIND_OTHER), -1)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), fails(CALL_MEMFD, KIND_OTHER), -1)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), fails(CALL_FTRUNCATE, KIND_OTHER), -1)
WRAP(int, ftruncate64, (int fd, off64_t n), (fd, n), fails(CALL_FTRUNCATE, KIND_OTHER), -1)
WRAP(int, unlink, (const char *path), (path), fails(CALL_UNLINK, KIND_OTHER), -1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), fails(CALL_MKDIR, KIND_OTHER), -1)
WRAP(char *, mkdtemp, (char *path), (path), fails(CALL_MKDTEMP, KIND_OTHER), NULL)
WRAP(int, rmdir, (const char *path), (path), fails(CALL_RMDIR, KIND_OTHER), -1)
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), fails(CALL_CHMOD, KIND_OTHER), -1)

WRAP(int, epoll_create1, (int flags), (flags), fails(CALL_EPOLL_CREATE, KIND_OTHER), -1)
WRAP(int, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event), (epoll, op, fd, event),
     fails(CALL_EPOLL_CTL, op == EPOLL_CTL_ADD ? KIND_ADD : KIND_OTHER), -1)
WRAP(int, epoll_wait, (int epoll, struct epoll_event *ret, int n, int ms), (epoll, ret, n, ms),
     fails(CALL_EPOLL_WAIT, KIND_OTHER), -1)
WRAP(int, epoll_pwait, (int epoll, struct epoll_event *ret, int n, int ms, const sigset_t *mask),
     (epoll, ret, n, ms, mask), fails(CALL_EPOLL_WAIT, KIND_OTHER), -1)
WRAP(int, eventfd, (unsigned value, int flags), (value, flags), fails(CALL_EVENTFD, KIND_OTHER), -1)
WRAP(int, pipe2, (int ret[2], int flags), (ret, flags), fails(CALL_PIPE, KIND_OTHER), -1)
WRAP(int, signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags),
     fails(CALL_SIGNALFD, KIND_OTHER), -1)
WRAP(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms),
     !polls_log((uintptr_t)fds, n) && fails(CALL_POLL, KIND_OTHER), -1)
WRAP(int, ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *wait, const sigset_t *mask),
     (fds, n, wait, mask), fails(CALL_POLL, KIND_OTHER), -1)

WRAP(int, pthread_create,
     (pthread_t *restrict ret, const pthread_attr_t *restrict attributes, void *(*fn)(void *),
      void *restrict data),
     (ret, attributes, fn, data), fails(CALL_THREAD, KIND_OTHER), control->error)
WRAP(pid_t, fork, (void), (), fails(CALL_FORK, KIND_OTHER), -1)
WRAP(int, execvp, (const char *file, char *const *argv), (file, argv), fails(CALL_EXEC, KIND_OTHER), -1)
WRAP(int, execvpe, (const char *file, char *const *argv, char *const *variables), (file, argv, variables),
     fails(CALL_EXEC, KIND_OTHER), -1)
WRAP(pid_t, waitpid, (pid_t pid, int *ret, int options), (pid, ret, options), fails(CALL_WAIT, KIND_OTHER), -1)
WRAP(int, waitid, (idtype_t type, id_t id, siginfo_t *ret, int options), (type, id, ret, options),
     fails(CALL_WAITID, KIND_OTHER), -1)
WRAP(ssize_t, getrandom, (void *ret, size_t n, unsigned flags), (ret, n, flags),
     fails(CALL_GETRANDOM, KIND_OTHER), -1)
WRAP(int, dup, (int fd), (fd), fails(CALL_DUP_ONE, KIND_OTHER), -1)
WRAP(ssize_t, send, (int fd, const void *data, size_t n, int flags), (fd, data, n, flags),
     fails(CALL_SEND, KIND_OTHER), -1)
WRAP(int, listen, (int fd, int n), (fd, n), fails(CALL_LISTEN, KIND_OTHER), -1)
WRAP(int, getpeername, (int fd, struct sockaddr *restrict a, socklen_t *restrict n), (fd, a, n),
     fails(CALL_GETPEERNAME, KIND_OTHER), -1)
WRAP(int, getaddrinfo,
     (const char *restrict name, const char *restrict port, const struct addrinfo *restrict hints,
      struct addrinfo **restrict ret),
     (name, port, hints, ret), fails(CALL_GETADDRINFO, KIND_OTHER), control->error)
WRAP(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n), fails_on(CALL_WRITEV, fd), -1)
WRAP(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n),
     fails(CALL_FALLOCATE, KIND_OTHER), -1)
WRAP(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n),
     fails(CALL_FALLOCATE, KIND_OTHER), -1)
WRAP(int, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n), fails(CALL_FALLOCATE, KIND_OTHER),
     control->error)
WRAP(int, posix_fallocate64, (int fd, off64_t at, off64_t n), (fd, at, n), fails(CALL_FALLOCATE, KIND_OTHER),
     control->error)
WRAP(int, fsync, (int fd), (fd), fails(CALL_FSYNC, KIND_OTHER), -1)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), fails(CALL_FCHMOD, KIND_OTHER), -1)
WRAP(int, fstatat, (int folder, const char *restrict path, struct stat *restrict ret, int flags),
     (folder, path, ret, flags), fails(CALL_FSTATAT, KIND_OTHER), -1)
WRAP(int, fstatat64, (int folder, const char *restrict path, struct stat64 *restrict ret, int flags),
     (folder, path, ret, flags), fails(CALL_FSTATAT, KIND_OTHER), -1)
WRAP(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode),
     fails(CALL_MKDIRAT, KIND_OTHER), -1)
WRAP(int, renameat, (int from, const char *path, int to, const char *name), (from, path, to, name),
     fails(CALL_RENAMEAT, KIND_OTHER), -1)
WRAP(int, rename, (const char *path, const char *name), (path, name), fails(CALL_RENAMEAT, KIND_OTHER), -1)
WRAP(int, linkat, (int from, const char *path, int to, const char *name, int flags),
     (from, path, to, name, flags), fails(CALL_LINKAT, KIND_OTHER), -1)
WRAP(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags),
     fails(CALL_UNLINKAT, KIND_OTHER), -1)
WRAP(int, posix_spawn,
     (pid_t *restrict ret, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
      const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
      char *const variables[restrict]),
     (ret, path, actions, attributes, argv, variables), fails(CALL_SPAWN, KIND_OTHER), control->error)
WRAP(int, posix_spawnp,
     (pid_t *restrict ret, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
      const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
      char *const variables[restrict]),
     (ret, path, actions, attributes, argv, variables), fails(CALL_SPAWN, KIND_OTHER), control->error)
WRAP(void *, aligned_alloc, (size_t boundary, size_t bytes), (boundary, bytes),
     fails(CALL_ALIGNED_ALLOC, KIND_OTHER), NULL)
WRAP(int, setrlimit, (__rlimit_resource_t resource, const struct rlimit *limit), (resource, limit),
     fails(CALL_SETRLIMIT, KIND_OTHER), -1)

/* ---- variable arguments ----------------------------------------------- */

#define LAST_ARGUMENT(type, after)                                                                             \
	({                                                                                                     \
		va_list list_;                                                                                 \
		type argument_;                                                                                \
		va_start(list_, after);                                                                        \
		argument_ = va_arg(list_, type);                                                               \
		va_end(list_);                                                                                 \
		argument_;                                                                                     \
	})

#define WRAP_OPEN(name)                                                                                        \
	EXPORT int name(const char *path, int flags, ...)                                                      \
	{                                                                                                      \
		unsigned mode = LAST_ARGUMENT(unsigned, flags);                                                \
                                                                                                               \
		return fails(CALL_OPEN, KIND_OTHER) ? -1                                                       \
						    : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);   \
	}
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_OPENAT(name)                                                                                      \
	EXPORT int name(int folder, const char *path, int flags, ...)                                          \
	{                                                                                                      \
		unsigned mode = LAST_ARGUMENT(unsigned, flags);                                                \
                                                                                                               \
		return fails(CALL_OPENAT, KIND_OTHER) ? -1                                                     \
						      : (int)syscall(SYS_openat, folder, path, flags, mode);   \
	}
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

/* These read and write a number of the descriptor's own. */
static bool fcntl_is_sure(int command)
{
	return command == F_GETFD || command == F_SETFD || command == F_GETFL || command == F_SETFL;
}

#define WRAP_FCNTL(name)                                                                                       \
	EXPORT int name(int fd, int command, ...)                                                              \
	{                                                                                                      \
		unsigned long argument = LAST_ARGUMENT(unsigned long, command);                                \
		bool dup = command == F_DUPFD || command == F_DUPFD_CLOEXEC;                                   \
                                                                                                               \
		if (!fcntl_is_sure(command) && fails(CALL_FCNTL, dup ? KIND_DUP : KIND_OTHER))                 \
			return -1;                                                                             \
		return (int)syscall(SYS_fcntl, fd, command, argument);                                         \
	}
WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

/* Of what has no function in libc. */
static bool bare_fails(long number)
{
	switch (number) {
	case SYS_pidfd_open:
		return fails(CALL_PIDFD, KIND_OTHER);
	case SYS_kcmp:
		return fails(CALL_KCMP, KIND_OTHER);
	case SYS_openat2:
		return fails(CALL_OPENAT2, KIND_OTHER);
	default:
		return false;
	}
}

EXPORT long syscall(long number, ...)
{
	static long (*real)(long, long, long, long, long, long, long);
	long arguments[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (bare_fails(number))
		return -1;
	if (!real)
		*(void **)&real = find("syscall");
	return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

/* ---- what is done all the same ---------------------------------------- */

/* Linux closes whatever close(2) says. libuv closes by a bare system call. */
EXPORT int close(int fd)
{
	bool failed = fails_on(CALL_CLOSE, fd);
	long r = syscall(SYS_close, fd);

	if (failed)
		errno = control->error;
	return failed ? -1 : (int)r;
}

#define WRAP_NSS(type, name, call)                                                                             \
	EXPORT type *name(const char *entry)                                                                   \
	{                                                                                                      \
		static type *(*real)(const char *);                                                            \
		type *found;                                                                                   \
                                                                                                               \
		if (fails(call, KIND_OTHER))                                                                   \
			return NULL;                                                                           \
		if (!real)                                                                                     \
			*(void **)&real = find(#name);                                                         \
		in_nss = true;                                                                                 \
		found = real(entry);                                                                           \
		in_nss = false;                                                                                \
		return found;                                                                                  \
	}
WRAP_NSS(struct passwd, getpwnam, CALL_GETPWNAM)
WRAP_NSS(struct group, getgrnam, CALL_GETGRNAM)

/* ---- memory ----------------------------------------------------------- */

/* By the names that libc has besides: dlsym allocates. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);

EXPORT void *malloc(size_t bytes)
{
	return fails(CALL_MALLOC, KIND_OTHER) ? NULL : __libc_malloc(bytes);
}

EXPORT void *calloc(size_t count, size_t bytes)
{
	return fails(CALL_CALLOC, KIND_OTHER) ? NULL : __libc_calloc(count, bytes);
}

EXPORT void *realloc(void *memory, size_t bytes)
{
	return fails(CALL_REALLOC, KIND_OTHER) ? NULL : __libc_realloc(memory, bytes);
}
