/* The notification socket: where the program's datagrams arrive, with who sent them and their descriptors. */
#ifndef GPUWM_KEEPER_INBOX_H
#define GPUWM_KEEPER_INBOX_H

#include "notify.h"

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#define INBOX_FDS_MAX 253 /* the kernel's SCM_MAX_FD: no datagram has more */

struct inbox {
	int fd;
	/* Both in a folder of ours with mode 0700: other users can't even fill the queue. An abstract
	 * name would be open to everyone on the machine. */
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* In a new folder below `where`, or below the first of $XDG_RUNTIME_DIR, /run and /tmp that takes one
 * when it is NULL. Logs why not: -errno. */
int inbox_open(struct inbox *inbox, const char *where);
/* Removes socket and folder. */
void inbox_close(struct inbox *inbox);

struct inbox_message {
	pid_t sender; /* as the kernel says; 0: beyond our PID namespace */
	bool text_cut; /* longer than NOTIFY_BYTES_MAX */
	bool fds_cut; /* descriptors are lost: we had no room for them */
	size_t bytes;
	size_t fd_count;
	int fds[INBOX_FDS_MAX]; /* close-on-exec; set one to -1 to keep it */
	char text[NOTIFY_BYTES_MAX + 1];
};

/* 1 with a message, which inbox_message_clear must have; 0 when there is none now; -errno. */
int inbox_receive(const struct inbox *inbox, struct inbox_message *ret);
/* Closes the descriptors that were not kept. */
void inbox_message_clear(struct inbox_message *message);

#endif
