/* A service manager for tests of the daemon: one thread that reads $NOTIFY_SOCKET, keeps what it
 * is given, and confirms, unless it is told not to. */
#ifndef GPUWM_TESTS_DAEMON_MANAGER_H
#define GPUWM_TESTS_DAEMON_MANAGER_H

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MANAGER_TEXT 16384

#define MANAGER_FDS 128

struct manager {
	int sock;
	char path[64];
	pthread_t thread;
	pthread_mutex_t lock;
	bool silent; /* confirms nothing */
	const char *answer; /* at each barrier, as gpuwm-keeper gives it; NULL: none, as systemd */
	useconds_t slow_us; /* before it confirms */
	struct {
		char name[64];
		int fd;
	} kept[MANAGER_FDS];
	int count, held_back; /* a barrier that was not confirmed */
	char heard[MANAGER_TEXT]; /* everything, line by line */
};

/* Starts it, and sets $NOTIFY_SOCKET and $FDSTORE, whose value is `limit`; ends it, and closes what it kept. */
void manager_start(struct manager *m, const char *limit);
void manager_stop(struct manager *m);

/* A silent one confirms what it held back, and all that comes. */
void manager_confirm(struct manager *m);

/* Returns how many descriptors it keeps under a name; NULL: in all. */
int manager_keeps(struct manager *m, const char *name);

/* Whether it was told these words. */
bool manager_heard(struct manager *m, const char *words);

#endif
