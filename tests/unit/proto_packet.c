#include "../../proto/wire/packet.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Stand before those of libc, and are interrupted once when told to. */
static bool interrupt;

__attribute__((visibility("default"))) ssize_t sendmsg(int sock, const struct msghdr *message, int flags)
{
	errno = EINTR;
	return interrupt ? interrupt = false, -1 : syscall(SYS_sendmsg, sock, message, flags);
}

__attribute__((visibility("default"))) ssize_t recvmsg(int sock, struct msghdr *message, int flags)
{
	errno = EINTR;
	return interrupt ? interrupt = false, -1 : syscall(SYS_recvmsg, sock, message, flags);
}

static int pair[2], fds_before;
static uint8_t room[PACKET_BYTES_MAX + 1], large[PACKET_BYTES_MAX + 100];
static struct packet packet;
static int fds[PACKET_FDS_MAX + 1];

static void open_pair(void)
{
	fds_before = fd_count();
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	packet.data = room;
	for (size_t i = 0; i <= PACKET_FDS_MAX; i++)
		fds[i] = pair[0];
}

static void close_pair(void)
{
	packet_drop(&packet);
	close(pair[0]);
	close(pair[1]);
	cr_expect_eq(fd_count(), fds_before, "a descriptor stayed open");
}

TestSuite(packet, .init = open_pair, .fini = close_pair);

Test(packet, arrives_whole_with_its_descriptors)
{
	cr_assert_eq(packet_send(pair[0], "hello", 5, fds, 2), 0);
	cr_assert_eq(packet_send(pair[0], "x", 1, NULL, 0), 0);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect_eq(packet.bytes, 5);
	cr_expect_arr_eq(room, "hello", 5);
	cr_expect_eq(packet.fd_count, 2);
	cr_expect(!packet.cut && !packet.fds_cut);
	packet_drop(&packet);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect(packet.bytes == 1 && packet.fd_count == 0);
}

Test(packet, descriptors_are_close_on_exec_and_the_same_files)
{
	struct stat sent, arrived;

	cr_assert_eq(packet_send(pair[0], "x", 1, fds, 1), 0);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect(fcntl(packet.fds[0], F_GETFD) & FD_CLOEXEC);
	fstat(pair[0], &sent);
	fstat(packet.fds[0], &arrived);
	cr_expect_eq(sent.st_ino, arrived.st_ino);
}

Test(packet, the_largest_passes)
{
	memset(large, 7, sizeof(large));
	cr_assert_eq(packet_send(pair[0], large, PACKET_BYTES_MAX, fds, PACKET_FDS_MAX), 0);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect_eq(packet.bytes, PACKET_BYTES_MAX);
	cr_expect_eq(packet.fd_count, PACKET_FDS_MAX);
	cr_expect(!packet.cut && !packet.fds_cut);
}

Test(packet, refuses_to_send_above_the_limits)
{
	cr_expect_eq(packet_send(pair[0], large, PACKET_BYTES_MAX + 1, NULL, 0), -EMSGSIZE);
	cr_expect_eq(packet_send(pair[0], "x", 1, fds, PACKET_FDS_MAX + 1), -EMSGSIZE);
	cr_expect_eq(packet_send(pair[0], "", 0, NULL, 0), -EMSGSIZE);
	cr_expect_eq(packet_receive(pair[1], true, &packet), -EAGAIN);
}

Test(packet, shows_one_that_is_too_large)
{
	cr_assert_eq(send(pair[0], large, PACKET_BYTES_MAX + 1, 0), PACKET_BYTES_MAX + 1);
	cr_assert_eq(send(pair[0], large, PACKET_BYTES_MAX + 2, 0), PACKET_BYTES_MAX + 2);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
		cr_expect(packet.cut);
		cr_expect_leq(packet.bytes, PACKET_BYTES_MAX);
	}
	cr_expect_eq(packet_receive(pair[1], true, &packet), -EAGAIN);
}

Test(packet, drops_descriptors_where_none_are_taken)
{
	int open = fd_count();

	cr_assert_eq(packet_send(pair[0], "x", 1, fds, 3), 0);
	cr_assert_eq(packet_receive(pair[1], false, &packet), 1);
	cr_expect(packet.fds_cut);
	cr_expect_eq(packet.fd_count, 0);
	cr_expect_eq(fd_count(), open);
}

Test(packet, closes_those_that_arrived_when_not_all_fit)
{
	int open = fd_count(), highest = dup(pair[0]);
	struct rlimit old, few;

	close(highest);
	getrlimit(RLIMIT_NOFILE, &old);
	few = (struct rlimit){(rlim_t)highest + 2, old.rlim_max};
	cr_assert_eq(packet_send(pair[0], "x", 1, fds, 10), 0);
	setrlimit(RLIMIT_NOFILE, &few);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	setrlimit(RLIMIT_NOFILE, &old);
	cr_expect(packet.fds_cut);
	cr_expect_eq(packet.fd_count, 0);
	cr_expect_eq(fd_count(), open);
}

Test(packet, an_empty_one_is_the_end_and_its_descriptors_are_closed)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.align = {.cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS,
			       .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct msghdr empty = {.msg_control = &control, .msg_controllen = sizeof(control)};
	int open = fd_count();

	memcpy(CMSG_DATA(&control.align), fds, sizeof(int));
	cr_assert_eq(sendmsg(pair[0], &empty, 0), 0);
	cr_expect_eq(packet_receive(pair[1], true, &packet), 0);
	cr_expect_eq(packet.fd_count, 0);
	cr_expect_eq(fd_count(), open);
}

Test(packet, other_ancillary_data_is_not_taken_for_descriptors)
{
	int on = 1;

	cr_assert_eq(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	cr_assert_eq(packet_send(pair[0], "x", 1, fds, 1), 0);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect_eq(packet.fd_count, 1);
	cr_expect(!packet.fds_cut);
}

Test(packet, nothing_there_is_eagain)
{
	cr_expect_eq(packet_receive(pair[1], true, &packet), -EAGAIN);
}

Test(packet, the_end_of_the_connection)
{
	close(pair[0]);
	pair[0] = -1;
	cr_expect_eq(packet_receive(pair[1], true, &packet), 0);
	cr_expect_eq(packet_send(pair[1], "x", 1, NULL, 0), -EPIPE);
}

Test(packet, a_reset_is_the_end_of_the_connection)
{
	cr_assert_eq(packet_send(pair[1], "unread", 6, NULL, 0), 0);
	close(pair[0]);
	pair[0] = -1;
	cr_expect_eq(packet_receive(pair[1], true, &packet), 0);
}

Test(packet, other_errors_are_told)
{
	cr_expect_eq(packet_receive(-1, true, &packet), -EBADF);
	cr_expect_eq(packet_send(-1, "x", 1, NULL, 0), -EBADF);
	cr_expect_eq(packet_send(pair[0], "x", 1, (int[]){-1}, 1), -EBADF);
}

Test(packet, interruptions_are_not_told)
{
	interrupt = true;
	cr_assert_eq(packet_send(pair[0], "x", 1, NULL, 0), 0);
	cr_expect(!interrupt);
	interrupt = true;
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect(!interrupt);
}

Test(packet, a_full_socket_is_eagain)
{
	int r = 0;

	for (int i = 0; i < 10000 && r == 0; i++)
		r = packet_send(pair[0], large, 1000, NULL, 0);
	cr_expect_eq(r, -EAGAIN);
}

Test(packet, a_descriptor_is_taken_once)
{
	int fd = -7;

	cr_assert_eq(packet_send(pair[0], "x", 1, fds, 2), 0);
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect_eq(packet_take_fd(&packet, 2, &fd), -EBADMSG);
	cr_expect_eq(packet_take_fd(&packet, UINT64_MAX, &fd), -EBADMSG);
	cr_expect_eq(fd, -7);
	cr_assert_eq(packet_take_fd(&packet, 1, &fd), 0);
	cr_expect_eq(packet_take_fd(&packet, 1, &(int){0}), -EBADMSG);
	packet_drop(&packet);
	packet_drop(&packet);
	cr_expect_eq(fcntl(fd, F_GETFD), FD_CLOEXEC, "what was taken stays open");
	close(fd);
}

Test(packet, unread_until_the_peer_has_read)
{
	cr_expect(!packet_unread(pair[0]));
	cr_assert_eq(packet_send(pair[0], "x", 1, NULL, 0), 0);
	cr_expect(packet_unread(pair[0]));
	cr_assert_eq(packet_receive(pair[1], true, &packet), 1);
	cr_expect(!packet_unread(pair[0]));
	cr_expect(!packet_unread(-1));
}
