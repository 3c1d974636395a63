#include "peer.h"
#include "../../base/text.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; older headers do not have it */
#endif

const char *role_name(enum role role)
{
	switch (role) {
	case ROLE_WORKER:
		return "worker";
	case ROLE_PUBLISHER:
		return "publisher";
	case ROLE_OPERATOR:
		return "operator";
	case ROLE_LOADER:
		return "loader";
	case ROLE_OBSERVER:
		return "observer";
	}
	return "none";
}

static void read_command(pid_t pid, char command[PEER_COMMAND_BYTES + 1])
{
	char path[64];
	ssize_t n;
	int fd;

	command[0] = '\0';
	if (pid <= 0)
		return;
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, command, PEER_COMMAND_BYTES);
	close(fd);
	if (n > 0 && command[n - 1] == '\n') /* the kernel's, behind the name */
		n--;
	command[n > 0 ? n : 0] = '\0';
	utf8_make_line(command); /* a process may call itself anything */
}

uint64_t peer_pid(const struct peer *peer)
{
	return peer->pid > 0 ? (uint64_t)peer->pid : 0;
}

int peer_credentials(int sock, struct peer *ret)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	*ret = (struct peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid, .pidfd = -1};
	return 0;
}

int peer_pidfd(int sock)
{
	int pidfd = -1;
	socklen_t size = sizeof(pidfd);

	return getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) < 0 ? -errno : pidfd;
}

int peer_look(int sock, struct peer *peer)
{
	int pidfd = peer_pidfd(sock);

	peer->pidfd = pidfd < 0 ? -1 : pidfd; /* an older kernel, or a peer that is gone */
	if (pidfd == -EMFILE || pidfd == -ENFILE)
		return pidfd;
	read_command(peer->pid, peer->command);
	return 0;
}

void peer_clear(struct peer *peer)
{
	if (peer->pidfd >= 0)
		close(peer->pidfd);
	peer->pidfd = -1;
}

int peer_groups(int sock, gid_t **ret_groups, size_t *ret_count)
{
	socklen_t size = 64 * sizeof(gid_t);
	gid_t *groups = malloc(size), *more;

	if (!groups)
		return -ENOMEM;
	while (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0) {
		int code = errno;

		more = code == ERANGE ? realloc(groups, size) : NULL; /* size is what it takes now */
		if (!more) {
			free(groups);
			return code == ERANGE ? -ENOMEM : -code;
		}
		groups = more;
	}
	*ret_groups = groups;
	*ret_count = size / sizeof(gid_t);
	return 0;
}

bool peer_in_group(int sock, const struct peer *peer, gid_t group)
{
	bool found = peer->gid == group;
	gid_t *groups;
	size_t count;

	if (found || peer_groups(sock, &groups, &count) < 0)
		return found;
	for (size_t i = 0; !found && i < count; i++)
		found = groups[i] == group;
	free(groups);
	return found;
}

/* ---- its unit ---- */

/* A line for each hierarchy. The deepest path of Kubernetes has 300 bytes, and cgroup v1 has 14 hierarchies. */
#define CGROUP_BYTES_MAX 8192

/* The path of a line "0::/path" (cgroup v2), or "1:name=systemd:/path" (v1); NULL: of others. */
static char *path_of(char *line, bool *ret_v2)
{
	char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return NULL;
	*path++ = '\0';
	*ret_v2 = controllers[1] == '\0';
	return *ret_v2 || strcmp(controllers + 1, "name=systemd") == 0 ? path : NULL;
}

/* Where both hierarchies are there, systemd puts its units into one, and the other has but a root. */
static char *find_path(char *text)
{
	char *found = NULL, *rest = text, *line;

	while ((line = strsep(&rest, "\n"))) {
		bool is_v2;
		char *path = path_of(line, &is_v2);

		if (path && strcmp(path, "/") != 0 && (!found || is_v2))
			found = path;
	}
	return found;
}

void peer_unit_of(char *text, char unit[NAME_BYTES_MAX + 1])
{
	char *rest = find_path(text), *part, *last = "";

	while ((part = strsep(&rest, "/"))) {
		if (*part && strcmp(part, "..") != 0)
			last = part;
		if (text_ends(last, ".service") || text_ends(last, ".scope"))
			break;
	}
	snprintf(unit, NAME_BYTES_MAX + 1, "%s", last);
	utf8_make_line(unit); /* who made the group may have called it anything */
}

void peer_unit(const struct peer *peer, char unit[NAME_BYTES_MAX + 1])
{
	struct pollfd exit = {.fd = peer->pidfd, .events = POLLIN};
	char path[64], text[CGROUP_BYTES_MAX];
	ssize_t bytes;
	int fd;

	unit[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)peer->pid);
	fd = peer->pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	bytes = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (bytes <= 0)
		return;
	if (peer->pidfd >= 0 && poll(&exit, 1, 0) != 0) /* it has exited: another process may have its number */
		return;
	text[bytes] = '\0';
	peer_unit_of(text, unit);
}
