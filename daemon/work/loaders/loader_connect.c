#include "loader_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What to do about a connect that failed. */
static const char *remedy(int code)
{
	switch (code) {
	case -EACCES:
	case -EPERM:
		return "gpuwmd's user must own it: SocketUser= in its unit";
	case -EPROTOTYPE:
		return "its unit needs ListenSequentialPacket=";
	case -EAGAIN:
		return "more connections wait there than it takes";
	case -EMFILE:
	case -ENFILE:
		return "raise the limit of open files (RLIMIT_NOFILE)";
	case -ENOENT:
	case -ECONNREFUSED:
		return "start what listens there (systemctl start gpuwm-loader.socket); socket in [loader] of "
		       "gpuwmd's configuration says where it is";
	default:
		return NULL;
	}
}

/* Never waits: a local connect succeeds at once or fails. */
static int loader_connect(struct loader *l, int *ret_sock, struct error *error)
{
	const char *path = l->pool->work->config->loader_socket;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = sock < 0 ? -errno : packet_connect(sock, path);

	if (r < 0) {
		if (sock >= 0)
			close(sock);
		return error_set(error, r, remedy(r), "no loader answers at %s: %s", path, strerror(-r));
	}
	*ret_sock = sock;
	return 0;
}

/* Another user's process: that its connection ends is all that gpuwmd can do. */
static void leave_alone(struct loader *l)
{
	(void)l;
}

static void on_death(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	loader_gone(poll->data, "");
}

int loader_mourn(struct loader *l, int pidfd)
{
	int r = uv_poll_init(l->pool->work->loop, &l->death, pidfd);

	if (r < 0) {
		close(pidfd);
		return r;
	}
	l->pidfd = pidfd;
	l->mourned = true;
	l->death.data = l;
	l->handles++;
	uv_poll_start(&l->death, UV_READABLE, on_death);
	return 0;
}

static void close_death(struct loader *l)
{
	if (l->pidfd >= 0)
		uv_close((uv_handle_t *)&l->death, loader_handle_closed);
}

const struct loader_kind loader_connected = {
	.begin = loader_connect,
	.kill = leave_alone,
	.close = close_death,
	.log = "its service's journal says why (journalctl -u 'gpuwm-loader@*')",
};
