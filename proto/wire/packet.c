#include "packet.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

union fds_buffer {
	char bytes[CMSG_SPACE(PACKET_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

int packet_connect(int sock, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	do
		r = connect(sock, (struct sockaddr *)&address, sizeof(address));
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int packet_send(int sock, const void *data, size_t bytes, const int *fds, size_t fd_count)
{
	struct iovec part = {(void *)data, bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union fds_buffer control;
	ssize_t sent;

	if (bytes == 0 || bytes > PACKET_BYTES_MAX || fd_count > PACKET_FDS_MAX)
		return -EMSGSIZE;
	if (fd_count) {
		size_t length = fd_count * sizeof(int);
		struct cmsghdr *header = &control.align;

		memset(&control, 0, CMSG_SPACE(length));
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(length);
		memcpy(CMSG_DATA(header), fds, length);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(length);
	}
	do
		sent = sendmsg(sock, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

static void fds_collect(struct packet *packet, struct msghdr *message)
{
	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
		size_t count;

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(packet->fds + packet->fd_count, CMSG_DATA(header), count * sizeof(int));
		packet->fd_count += count;
	}
}

int packet_receive(int sock, bool take_fds, struct packet *packet)
{
	struct iovec part = {packet->data, PACKET_BYTES_MAX + 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union fds_buffer control;
	ssize_t received;

	packet->bytes = packet->fd_count = 0;
	packet->cut = packet->fds_cut = false;
	if (take_fds) {
		message.msg_control = &control;
		message.msg_controllen = sizeof control;
	}
	do
		received = recvmsg(sock, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (received < 0 && errno == EINTR);
	if (received < 0)
		return errno == ECONNRESET ? 0 : -errno;
	if (take_fds)
		fds_collect(packet, &message);
	packet->cut = (message.msg_flags & MSG_TRUNC) || received > PACKET_BYTES_MAX;
	packet->fds_cut = message.msg_flags & MSG_CTRUNC;
	packet->bytes = packet->cut ? PACKET_BYTES_MAX : (size_t)received;
	if (packet->fds_cut || received == 0)
		packet_drop(packet);
	return received > 0;
}

int packet_take_fd(struct packet *packet, uint64_t position, int *ret_fd)
{
	if (position >= packet->fd_count || packet->fds[position] < 0)
		return -EBADMSG;
	*ret_fd = packet->fds[position];
	packet->fds[position] = -1;
	return 0;
}

void packet_drop(struct packet *packet)
{
	for (size_t i = 0; i < packet->fd_count; i++)
		if (packet->fds[i] >= 0)
			close(packet->fds[i]);
	packet->fd_count = 0;
}

bool packet_unread(int sock)
{
	int bytes = 0;

	return ioctl(sock, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}
