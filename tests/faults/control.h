/* A page of memory that tests/faults shares with the programs that it tests: tests/preload/fail-call.c, put before
 * them, counts their calls there, and lets the call fail that the page names. */
#ifndef GPUWM_FAULTS_CONTROL_H
#define GPUWM_FAULTS_CONTROL_H

#include <stdatomic.h>

#define FAULTS_CONTROL "FAULTS_CONTROL" /* the variable that names the page's file */

/* The functions of libc that can be made to fail. libc's own calls of them can't. */
#define CALLS(X)                                                                                               \
	X(SOCKET, socket)                                                                                      \
	X(SOCKETPAIR, socketpair)                                                                              \
	X(ACCEPT, accept4)                                                                                     \
	X(CONNECT, connect)                                                                                    \
	X(BIND, bind)                                                                                          \
	X(SENDMSG, sendmsg)                                                                                    \
	X(SENDTO, sendto)                                                                                      \
	X(RECVMSG, recvmsg)                                                                                    \
	X(RECV, recv)                                                                                          \
	X(GETSOCKOPT, getsockopt)                                                                              \
	X(SETSOCKOPT, setsockopt)                                                                              \
	X(GETSOCKNAME, getsockname)                                                                            \
	X(READ, read)                                                                                          \
	X(PREAD, pread)                                                                                        \
	X(PREADV, preadv2)                                                                                     \
	X(WRITE, write)                                                                                        \
	X(PWRITE, pwrite)                                                                                      \
	X(PWRITEV, pwritev)                                                                                    \
	X(OPEN, open)                                                                                          \
	X(OPENAT, openat)                                                                                      \
	X(OPENAT2, openat2)                                                                                    \
	X(FOPEN, fopen)                                                                                        \
	X(OPENDIR, opendir)                                                                                    \
	X(READDIR, readdir)                                                                                    \
	X(CLOSE, close)                                                                                        \
	X(STAT, stat)                                                                                          \
	X(LSTAT, lstat)                                                                                        \
	X(FSTAT, fstat)                                                                                        \
	X(STATX, statx)                                                                                        \
	X(READLINK, readlink)                                                                                  \
	X(FCNTL, fcntl)                                                                                        \
	X(DUP, dup2)                                                                                           \
	X(MMAP, mmap)                                                                                          \
	X(MADVISE, madvise)                                                                                    \
	X(MEMFD, memfd_create)                                                                                 \
	X(FTRUNCATE, ftruncate)                                                                                \
	X(UNLINK, unlink)                                                                                      \
	X(MKDIR, mkdir)                                                                                        \
	X(MKDTEMP, mkdtemp)                                                                                    \
	X(RMDIR, rmdir)                                                                                        \
	X(CHMOD, chmod)                                                                                        \
	X(EPOLL_CREATE, epoll_create1)                                                                         \
	X(EPOLL_CTL, epoll_ctl)                                                                                \
	X(EPOLL_WAIT, epoll_wait)                                                                              \
	X(EVENTFD, eventfd)                                                                                    \
	X(PIPE, pipe2)                                                                                         \
	X(SIGNALFD, signalfd)                                                                                  \
	X(POLL, poll)                                                                                          \
	X(THREAD, pthread_create)                                                                              \
	X(FORK, fork)                                                                                          \
	X(EXEC, exec)                                                                                          \
	X(WAIT, waitpid)                                                                                       \
	X(WAITID, waitid)                                                                                      \
	X(PIDFD, pidfd_open)                                                                                   \
	X(KCMP, kcmp)                                                                                          \
	X(GETRANDOM, getrandom)                                                                                \
	X(GETPWNAM, getpwnam)                                                                                  \
	X(GETGRNAM, getgrnam)                                                                                  \
	X(SETRLIMIT, setrlimit)                                                                                \
	X(DUP_ONE, dup)                                                                                        \
	X(SEND, send)                                                                                          \
	X(LISTEN, listen)                                                                                      \
	X(GETPEERNAME, getpeername)                                                                            \
	X(GETADDRINFO, getaddrinfo)                                                                            \
	X(WRITEV, writev)                                                                                      \
	X(FALLOCATE, fallocate)                                                                                \
	X(FSYNC, fsync)                                                                                        \
	X(FCHMOD, fchmod)                                                                                      \
	X(FSTATAT, fstatat)                                                                                    \
	X(MKDIRAT, mkdirat)                                                                                    \
	X(RENAMEAT, renameat)                                                                                  \
	X(LINKAT, linkat)                                                                                      \
	X(UNLINKAT, unlinkat)                                                                                  \
	X(SPAWN, posix_spawn)                                                                                  \
	X(ALIGNED_ALLOC, aligned_alloc)                                                                        \
	X(MALLOC, malloc)                                                                                      \
	X(CALLOC, calloc)                                                                                      \
	X(REALLOC, realloc)

#define CALL_NUMBER(number, name) CALL_##number,
enum call { CALLS(CALL_NUMBER) CALL_COUNT };

/* What a call is about: some errors fit only some. */
enum { KIND_FILE, KIND_STREAM, KIND_DUP, KIND_ADD, KIND_OTHER, KIND_COUNT };
#define KIND(kind) (1u << KIND_##kind)
#define KIND_ANY (~0u)

/* Those before PROGRAM_CTL are a stack of their own; the others are run beside it. */
enum program {
	PROGRAM_GPUWMD,
	PROGRAM_KEEPER,
	PROGRAM_LOADER,
	PROGRAM_CTL,
	PROGRAM_EXPORTER,
	PROGRAM_FOLLOW,
	PROGRAM_PEER,
	PROGRAM_COUNT
};
#define PROGRAM_NAMES                                                                                          \
	"gpuwmd", "gpuwm-keeper", "gpuwm-loader", "gpuwmctl", "gpuwm-exporter", "gpuwm-follow", "gpuwm-peer"

#define FRAMES_MAX 24
#define FRAME_BYTES 64
#define CRASHES_MAX 4

struct trace {
	char frames[FRAMES_MAX][FRAME_BYTES]; /* "program+0x123" or "library:function"; "" after the last */
};

struct control {
	/* What fails: the `number`-th call (from 1) by this program, of all its processes, since `armed`. */
	enum program program;
	enum call call;
	int error;
	unsigned kinds, number;
	atomic_bool armed;
	atomic_bool counting;

	atomic_uint seen; /* such calls */
	atomic_bool struck;
	struct trace where; /* the call that failed */

	atomic_uint crashes; /* by SIGSEGV, SIGABRT and the like */
	struct {
		enum program program;
		int signal;
		struct trace where;
	} crash[CRASHES_MAX];

	atomic_uint counts[PROGRAM_COUNT][CALL_COUNT][KIND_COUNT];
};

#endif
