/* Loaders that gpuwmd connects to: the test is the service behind the socket, and the loaders. */
#ifndef GPUWM_TESTS_DAEMON_SERVICE_H
#define GPUWM_TESTS_DAEMON_SERVICE_H

#include "base/clock.h"
#include "daemon/work/loaders/loader_internal.h"
#include "tests/support/daemon/server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

extern int listener;

/* Fixtures: a server whose loaders come from a socket; its end. */
void open_service(void);
void close_service(void);

/* The end of each test: gpuwmd leaves, and no descriptor of it is left. */
void leave(void);

/* ---- the service ---- */

struct sockaddr_un address_of(const char *path);
/* Listens at that socket, with sockets of this type. */
void listen_for(int type, int backlog);

/* Returns the next loader's end of its connection. */
int accept_one(void);

/* Begins a loader_hello; the caller ends and sends it. */
void begin_hello(struct message_writer *w);

/* Sends a loader_hello with this pidfd; -1: an old kernel's, without one. Returns the answer's code. */
int hello_with(int sock, int fd);

/* Accepts a loader, which says hello; a job that waits is its own then. Returns its end. */
int standby_with(int fd);

/* Starts a process that lives until child_dies, in a loader's place. Returns its pidfd. */
int child_pidfd(void);
void child_dies(void);

/* ---- gpuwmd ---- */

/* Starts the loaders. */
void pool_start(void);

/* A load that waits for a loader, or has got the standby one. */
struct job *new_job(void);

/* The loader makes progress with its job: it has begun the job. */
void say_progress(int sock);

/* The loader hands a part over that it has made or checked: one segment of 4,096 bytes. gpuwmd's answer is still to come. */
void send_checked(int sock, const struct version_id *publish, const char *device);

/* The loader hands over the first rank's part on host that it has moved: so many segments of this size. Returns the code of the answer. */
int loader_moves(int sock, uint32_t count, uint64_t bytes);

/* The loader ends its job, with this error; code 0 is success. gpuwmd's answer is the last message. */
void loader_ends(int sock, int code, const char *what);

/* The job has failed with EIO, and its error says this and has this remedy. */
void expect_job_failed(const struct job *job, const char *says, const char *remedy);

/* The one job of the answer to `jobs`. */
struct fields job_told(int sock);

#endif
