#include "notify.h"
#include "../base/leftover.h"
#include "../service/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_PREFIX "gpuwm-keeper-"
#define SOCKET_NAME "notify"
#define MAKER_NAME "keeper" /* a link that leads nowhere: its text says whose the folder is (base/leftover.h) */

/* A keeper makes the link at once. One that has made the folder and is still to make the link makes another folder if its own is
 * gone. */
#define MAKER_LATE_S 60

/* Returns whether a keeper that was killed has left the folder. maker: the text of its link; NULL: it has none, and it is removed only
 * if it is empty. */
static bool folder_is_left(const struct stat *st, const char *maker)
{
	if (st->st_uid != geteuid())
		return false;
	return maker ? leftover_maker_look(maker) == MAKER_GONE : time(NULL) - st->st_mtime > MAKER_LATE_S;
}

/* Removes a folder of a keeper of this user that was killed. */
static void folder_remove_left(int where, const char *name)
{
	int folder = openat(where, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char maker[LEFTOVER_MAKER_BYTES];
	ssize_t length;
	struct stat st;

	if (folder < 0)
		return;
	length = readlinkat(folder, MAKER_NAME, maker, sizeof(maker) - 1);
	if (length > 0)
		maker[length] = '\0';
	if (length != 0 && fstat(folder, &st) == 0 && folder_is_left(&st, length > 0 ? maker : NULL)) {
		if (length > 0) {
			unlinkat(folder, SOCKET_NAME, 0);
			unlinkat(folder, MAKER_NAME, 0);
		}
		unlinkat(where, name, AT_REMOVEDIR);
	}
	close(folder);
}

static void folders_remove_left(const char *path)
{
	DIR *where = opendir(path);
	const struct dirent *entry;

	/* cppcheck-suppress readdirCalled ; there is one thread */
	while (where && (entry = readdir(where))) {
		if (strncmp(entry->d_name, FOLDER_PREFIX, strlen(FOLDER_PREFIX)) == 0)
			folder_remove_left(dirfd(where), entry->d_name);
	}
	if (where)
		closedir(where);
}

#define INBOX_LINK_BYTES (sizeof(((struct inbox *)0)->folder) + sizeof(MAKER_NAME) + 1)

static void folder_link(const struct inbox *inbox, char ret[INBOX_LINK_BYTES])
{
	snprintf(ret, INBOX_LINK_BYTES, "%s/" MAKER_NAME, inbox->folder);
}

/* Makes the folder, whose name ends with XXXXXX, and the link in it. */
static int folder_make_own(struct inbox *inbox)
{
	char maker[LEFTOVER_MAKER_BYTES], link[INBOX_LINK_BYTES], name[sizeof(inbox->folder)];

	leftover_maker_write(maker);
	memcpy(name, inbox->folder, sizeof(name));
	for (;;) {
		memcpy(inbox->folder, name, sizeof(name));
		if (!mkdtemp(inbox->folder)) {
			inbox->folder[0] = '\0';
			return -errno;
		}
		folder_link(inbox, link);
		if (symlink(maker, link) == 0)
			return 0;
		if (errno != ENOENT)
			break;
	}
	/* Without it nobody removes the folder after a kill. */
	log_warning("%s can't be made: %s", link, strerror(errno));
	return 0;
}

static int folder_make(struct inbox *inbox, const char *where)
{
	int length =
		snprintf(inbox->path, sizeof(inbox->path), "%s/" FOLDER_PREFIX "XXXXXX/" SOCKET_NAME, where);
	int r;

	if (length < 0 || (size_t)length >= sizeof(inbox->path))
		return -ENAMETOOLONG;
	memcpy(inbox->folder, inbox->path, (size_t)length + 1);
	*strrchr(inbox->folder, '/') = '\0';
	folders_remove_left(where);
	r = folder_make_own(inbox);
	if (r < 0)
		return r;
	memcpy(inbox->path, inbox->folder, strlen(inbox->folder));
	return 0;
}

static int folder_find(struct inbox *inbox, const char *where)
{
	const char *const usual[] = {getenv("XDG_RUNTIME_DIR"), "/run", "/tmp"};
	int r = -ENOENT;

	if (where) {
		r = folder_make(inbox, where);
		if (r < 0)
			log_error("%s takes no folder for the notification socket: %s", where, strerror(-r));
		return r;
	}
	for (size_t i = 0; r < 0 && i < sizeof(usual) / sizeof(usual[0]); i++) {
		if (usual[i] && usual[i][0] == '/')
			r = folder_make(inbox, usual[i]);
	}
	if (r < 0)
		log_error(
			"neither XDG_RUNTIME_DIR nor /run nor /tmp takes a folder for the notification socket "
			"(%s): name one with --runtime-dir",
			strerror(-r));
	return r;
}

int inbox_open(struct inbox *inbox, const char *where)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int on = 1;
	int r;

	*inbox = (struct inbox){.fd = -1};
	r = folder_find(inbox, where);
	if (r < 0)
		return r;
	/* The length of the queue is net.unix.max_dgram_qlen, whatever SO_RCVBUF says. If the queue is full, the sender waits, so nothing
	 * is lost. */
	inbox->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	memcpy(address.sun_path, inbox->path, sizeof(address.sun_path));
	if (inbox->fd < 0 || setsockopt(inbox->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
	    bind(inbox->fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		log_error("the notification socket %s: %s", inbox->path, strerror(-r));
		inbox_close(inbox);
	}
	return r;
}

void inbox_close(struct inbox *inbox)
{
	if (inbox->fd >= 0)
		close(inbox->fd);
	if (inbox->folder[0]) {
		char link[INBOX_LINK_BYTES];

		folder_link(inbox, link);
		unlink(inbox->path);
		unlink(link);
		rmdir(inbox->folder);
	}
	*inbox = (struct inbox){.fd = -1};
}

/* Room for all that the kernel can put there, so that only this process's limit of open files can
 * cut it. */
union control {
	char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(INBOX_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

static void take_control(struct inbox_message *message, struct msghdr *header)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);
		struct ucred sender;

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS) {
			memcpy(message->fds, CMSG_DATA(c), bytes);
			message->fd_count = bytes / sizeof(int);
		} else if (c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&sender, CMSG_DATA(c), sizeof(sender));
			message->sender = sender.pid;
		}
	}
}

int inbox_receive(const struct inbox *inbox, struct inbox_message *ret)
{
	union control control;
	struct iovec text = {ret->text, sizeof(ret->text)};
	struct msghdr header = {.msg_iov = &text,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control.bytes)};
	ssize_t got = recvmsg(inbox->fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	ret->sender = 0;
	ret->fd_count = 0;
	ret->bytes = (size_t)got;
	/* The buffer has one byte more than a text may have. */
	ret->text_cut = (header.msg_flags & MSG_TRUNC) || ret->bytes > NOTIFY_BYTES_MAX;
	ret->fds_cut = header.msg_flags & MSG_CTRUNC;
	take_control(ret, &header);
	return 1;
}

void inbox_message_clear(struct inbox_message *message)
{
	for (size_t i = 0; i < message->fd_count; i++) {
		if (message->fds[i] >= 0)
			close(message->fds[i]);
	}
	message->fd_count = 0;
}
