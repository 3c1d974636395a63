#include "standby.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

static int find_user(const char *user, uid_t *ret_uid, struct error *error)
{
	char *end;
	unsigned long number = strtoul(user, &end, 10);
	const struct passwd *entry;

	if (user[0] >= '0' && user[0] <= '9' && *end == '\0' && number < UINT32_MAX) {
		*ret_uid = (uid_t)number;
		return 0;
	}
	errno = 0;
	/* cppcheck-suppress getpwnamCalled ; there is one thread yet */
	entry = getpwnam(user);
	if (!entry)
		return error_set(error, -ENOENT, "--user names the one that gpuwmd runs as",
				 "there is no user %.64s%s%s", user, errno ? ": " : "",
				 errno ? strerror(errno) : "");
	*ret_uid = entry->pw_uid;
	return 0;
}

int activated_peer(int sock, const char *user, struct error *error)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	uid_t uid = 0;
	int r = find_user(user, &uid, error);

	if (r < 0)
		return r;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return error_set(error, -errno, NULL, "gpuwm-loader can't tell which user connected: %s",
				 strerror(errno));
	if (peer.uid != uid)
		return error_set(error, -EACCES,
				 "only gpuwmd may connect; --user names the user that it runs as",
				 "a connection of user %u (pid %d) is refused: it is not %.64s's (%u)",
				 (unsigned)peer.uid, (int)peer.pid, user, (unsigned)uid);
	return 0;
}

int activated_socket(const char *user, int *ret_sock, struct error *error)
{
	int sock = SD_LISTEN_FDS_START, count = sd_listen_fds(1), r;

	if (count < 0)
		return error_set(error, count, NULL, "LISTEN_FDS in the environment: %s", strerror(-count));
	if (count != 1 || sd_is_socket(sock, AF_UNIX, SOCK_SEQPACKET, 0) <= 0)
		return error_set(error, -EINVAL, "the socket unit needs ListenSequentialPacket= and Accept=yes",
				 "--activated takes one connected socket; %d descriptor%s passed", count,
				 count == 1 ? " was" : "s were");
	r = activated_peer(sock, user, error);
	if (r < 0)
		close(sock);
	else
		*ret_sock = sock;
	return r;
}
