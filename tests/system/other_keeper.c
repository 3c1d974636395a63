#include "other_keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void other_prepare(struct other *o, const struct keeper *k)
{
	memset(o, 0, sizeof *o);
	o->sock = o->listener = -1;
	o->packet.data = (uint8_t *)o->text;
	snprintf(o->path, sizeof o->path, "%s/take-over", k->folder.dir);
}

static bool connected(struct other *o)
{
	o->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (packet_connect(o->sock, o->path) == 0)
		return true;
	close(o->sock);
	return false;
}

void other_connect(struct other *o)
{
	cr_assert(EVENTUALLY(KEEPER_MS, connected(o)), "nobody listens at %s", o->path);
}

void other_listen(struct other *o)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	o->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", o->path);
	cr_assert(bind(o->listener, (struct sockaddr *)&address, sizeof address) == 0);
	cr_assert(listen(o->listener, 4) == 0);
}

void other_accept(struct other *o)
{
	cr_assert(poll(&(struct pollfd){.fd = o->listener, .events = POLLIN}, 1, KEEPER_MS) == 1);
	o->sock = accept4(o->listener, NULL, NULL, SOCK_CLOEXEC);
	other_expect(o, "TAKE-OVER 1 ");
}

void other_send(const struct other *o, const char *text, const int *fds, size_t count)
{
	cr_assert_eq(packet_send(o->sock, text, strlen(text), fds, count), 0);
}

void other_say(const struct other *o, const char *text)
{
	other_send(o, text, NULL, 0);
}

static int receive(struct other *o)
{
	int r;

	packet_drop(&o->packet);
	cr_assert(poll(&(struct pollfd){.fd = o->sock, .events = POLLIN}, 1, KEEPER_MS) == 1, "nothing comes");
	r = packet_receive(o->sock, true, &o->packet);
	if (r > 0)
		o->text[o->packet.bytes] = 0;
	return r;
}

void other_expect(struct other *o, const char *beginning)
{
	cr_assert_eq(receive(o), 1, "the keeper closed the connection");
	cr_assert(strncmp(o->text, beginning, strlen(beginning)) == 0, "%s", o->text);
}

void other_expect_end(struct other *o)
{
	cr_assert_eq(receive(o), 0, "%s", o->text);
	other_close(o);
}

void other_close(struct other *o)
{
	packet_drop(&o->packet);
	close(o->sock);
	o->sock = -1;
}

int other_memfd(char byte)
{
	int fd = memfd_create("other", MFD_CLOEXEC);

	cr_assert_eq(write(fd, &byte, 1), 1);
	return fd;
}

void other_send_store(const struct other *o)
{
	const int fds[] = {other_memfd(1), other_memfd(2)};
	const int socket_and_lock[] = {o->listener, other_memfd(0)};

	other_send(o, "BEGIN ", socket_and_lock, 2);
	other_send(o, "STORE\na\nb", fds, 2);
	other_say(o, "END 2");
	close(fds[0]);
	close(fds[1]);
	close(socket_and_lock[1]);
}
