#include "ipc_pass.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Abstract: everybody may connect, and it is gone with its process. */
static socklen_t address_of(pid_t maker, struct sockaddr_un *ret)
{
	int length;

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	length = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "fakecuda-%d", maker);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_descriptor(int to, int fd)
{
	union control control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec byte = {"", 1};
	const struct msghdr message = {
		.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	sendmsg(to, &message, MSG_NOSIGNAL);
}

static void answer(int to)
{
	uint64_t bytes;
	int fd, device;

	if (recv(to, &fd, sizeof(fd), 0) == sizeof(fd) && memory_file_of(fd, &device, &bytes))
		send_descriptor(to, fd);
	close(to);
}

static void *pass_all(void *user_data)
{
	const int listener = *(const int *)user_data;
	int to;

	while ((to = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		answer(to);
	return NULL;
}

bool pass_begin(void)
{
	static int listener = -1;
	struct sockaddr_un address;
	socklen_t length = address_of(getpid(), &address);
	pthread_t thread;

	if (listener >= 0)
		return true;
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (const struct sockaddr *)&address, length) < 0 ||
	    listen(listener, SOMAXCONN) < 0 || pthread_create(&thread, NULL, pass_all, &listener) != 0)
		return false;
	pthread_detach(thread);
	return true;
}

static int receive_descriptor(int from)
{
	union control control;
	char byte;
	struct iovec bytes = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int fd;

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

int pass_ask(pid_t maker, int fd)
{
	struct sockaddr_un address;
	socklen_t length = address_of(maker, &address);
	int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ret = -1;

	if (to < 0)
		return -1;
	if (connect(to, (const struct sockaddr *)&address, length) == 0 &&
	    send(to, &fd, sizeof(fd), MSG_NOSIGNAL) == sizeof(fd))
		ret = receive_descriptor(to);
	close(to);
	return ret;
}
