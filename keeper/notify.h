/* Notifications: their text, which sd_notify(3) sends as newline-separated assignments, and the socket on which they come.
 *
 * libsystemd has only the sender's side. The receiver's side is part of systemd's manager and in no
 * library. So it is here, with the rules of systemd's src/core. */
#ifndef GPUWM_KEEPER_NOTIFY_H
#define GPUWM_KEEPER_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

/* systemd's limit; the keeper refuses a longer datagram */
#define NOTIFY_BYTES_MAX 4096
#define FD_NAME_BYTES_MAX 255
#define FD_NAME_DEFAULT "stored"

struct notification {
	bool ready;
	bool stopping;
	bool watchdog; /* WATCHDOG=1: the program lives */
	bool watchdog_trigger; /* WATCHDOG=trigger: act as if it did not live */
	bool store, remove; /* FDSTORE=1, FDSTOREREMOVE=1 */
	bool barrier; /* BARRIER=1: the keeper answers on its descriptor and closes it */
	bool adopted; /* STORE_ADOPTED_TEXT of service/manager.h */
	bool main_pid; /* MAINPID=, which the keeper does not follow */
	bool name_given, name_valid;
	char name[FD_NAME_BYTES_MAX + 1]; /* FDNAME=, if it is valid */
	uint64_t extend_us; /* EXTEND_TIMEOUT_USEC=; 0: none */
	const char *status; /* STATUS=, a part of the text without a terminating zero; NULL: none */
	size_t status_bytes;
};

/* Parses the text. It skips unknown assignments, and those that do not concern the keeper:
 * RELOADING, ERRNO, FDPOLL (it polls no stored descriptor). If an assignment is there twice, the
 * first one wins. Returns 0 and sets *ret. Fails with -EBADMSG if the text has a zero byte. */
int notify_parse(const char *text, size_t bytes, struct notification *ret);

/* Returns whether the name has 1 to 255 characters, all of them ASCII, and none a control character
 * or ':'. */
bool fd_name_valid(const char *name, size_t bytes);

/* ---- the socket ----
 * The program's datagrams arrive here, with their sender and their descriptors. */

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
