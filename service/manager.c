#include "manager.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int manager_tell(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock, r = 0;

	if (length < 2 || length >= sizeof(address.sun_path))
		return 0;
	memcpy(address.sun_path, path[0] == '@' ? "" : path, 1);
	memcpy(address.sun_path + 1, path + 1, length - 1);
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -EAGAIN;
	if (sendto(sock, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0 &&
	    errno == EAGAIN)
		r = -EAGAIN;
	close(sock);
	return r;
}

/* ---- the store of gpuwm-keeper ---- */

#define LAST_LINE "END\n"
#define ANY_NAME "*"
/* The bytes of the text that are kept free for what comes after the refusals: "-2147483648 *" and
 * the last line. */
#define KEPT_FREE 24

static void put_line(struct store_answer *answer, const char *name, int code)
{
	answer->bytes += (size_t)snprintf(answer->text + answer->bytes, sizeof(answer->text) - answer->bytes,
					  "%d %s\n", -code, name);
}

void store_answer_refuse(struct store_answer *answer, const char *name, int code)
{
	/* A line has a number of at most 11 characters, a space, the name and a line's end. */
	if (answer->bytes + strlen(name) + 13 + KEPT_FREE <= STORE_ANSWER_BYTES) {
		put_line(answer, name, code);
	} else if (!answer->has_more) {
		answer->has_more = true;
		put_line(answer, ANY_NAME, code);
	}
}

void store_answer_send(struct store_answer *answer, int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};

	memcpy(answer->text + answer->bytes, LAST_LINE, sizeof(LAST_LINE));
	answer->bytes += strlen(LAST_LINE);
	/* If the descriptor is anything but an empty pipe, its sender gets no answer. */
	if (poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT)
		(void)!write(fd, answer->text, answer->bytes);
	answer->bytes = 0;
	answer->has_more = false;
}

bool store_answer_is_whole(const char *text)
{
	size_t bytes = strlen(text), last = strlen(LAST_LINE);

	if (bytes < last || strcmp(text + bytes - last, LAST_LINE) != 0)
		return false;
	return bytes == last || text[bytes - last - 1] == '\n';
}

static bool line_names(const char *line, const char *name)
{
	const char *space = strchr(line, ' ');
	size_t length = strlen(name);

	return space && strncmp(space + 1, name, length) == 0 && space[1 + length] == '\n';
}

int store_answer_find(const char *text, const char *name)
{
	for (const char *line = text; line && *line && strcmp(line, LAST_LINE) != 0;) {
		const char *end = strchr(line, '\n');

		if (line_names(line, name) || line_names(line, ANY_NAME))
			return -(int)strtol(line, NULL, 10);
		line = end ? end + 1 : NULL;
	}
	return 0;
}
