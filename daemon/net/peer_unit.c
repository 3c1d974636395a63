#include "peer.h"
#include "../../base/utf8.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static bool ends_with(const char *text, const char *end)
{
	size_t bytes = strlen(text), end_bytes = strlen(end);

	return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

void peer_unit_of(char *text, char unit[NAME_BYTES_MAX + 1])
{
	char *rest = find_path(text), *part, *last = "";

	while ((part = strsep(&rest, "/"))) {
		if (*part && strcmp(part, "..") != 0)
			last = part;
		if (ends_with(last, ".service") || ends_with(last, ".scope"))
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
