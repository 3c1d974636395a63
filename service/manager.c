#include "manager.h"

#include <errno.h>
#include <stddef.h>
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
