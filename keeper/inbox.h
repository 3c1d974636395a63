/* The notification socket. The program's datagrams arrive here, with their sender and their
 * descriptors. */
#ifndef GPUWM_KEEPER_INBOX_H
#define GPUWM_KEEPER_INBOX_H

#include "notify.h"

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#define INBOX_FDS_MAX 253 /* the kernel's SCM_MAX_FD: no datagram has more */

struct inbox {
	int fd;
	/* The socket and its folder. The folder has mode 0700, so that other users can't even fill
	 * the queue. An abstract name would be open to everyone on the machine. */
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Opens the socket in a new folder below `where`. If `where` is NULL, it tries $XDG_RUNTIME_DIR,
 * /run and /tmp in turn. Returns 0. Fails with -errno, and logs why. */
int inbox_open(struct inbox *inbox, const char *where);
/* Removes the socket and its folder. */
void inbox_close(struct inbox *inbox);

struct inbox_message {
	pid_t sender; /* as the kernel says; 0: outside of the keeper's PID namespace */
	bool text_cut; /* longer than NOTIFY_BYTES_MAX */
	bool fds_cut; /* descriptors are lost, because the keeper had no room for them */
	size_t bytes;
	size_t fd_count;
	int fds[INBOX_FDS_MAX]; /* close-on-exec; set one to -1 to keep it */
	char text[NOTIFY_BYTES_MAX + 1];
};

/* Returns 1 with a message, which the caller ends with inbox_message_clear. Returns 0 if there is
 * none now. Fails with -errno. */
int inbox_receive(const struct inbox *inbox, struct inbox_message *ret);
/* Closes the descriptors that were not kept. */
void inbox_message_clear(struct inbox_message *message);

#endif
