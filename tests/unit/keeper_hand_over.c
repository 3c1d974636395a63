#include "keeper/take_over.h"
#include "service/manager.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/open_files.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct hand_over *h;
static struct link *other;
static struct store store;
static struct take_over_socket sock;
static int fds_before;

static void connect_both(void)
{
	int ends[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	hand_over_accept(h, ends[0], 1000);
	link_open(other, ends[1]);
}

static void setup(void)
{
	open_files_raise();
	cr_redirect_stderr();
	fds_before = fd_count();
	h = calloc(1, sizeof(*h));
	other = calloc(1, sizeof(*other));
	cr_assert(h && other && store_init(&store, 1000) == 0);
	hand_over_init(h, 0);
	sock = (struct take_over_socket){memfd_create("", MFD_CLOEXEC), memfd_create("", MFD_CLOEXEC)};
	connect_both();
}

static void finish(void)
{
	link_close(&h->link);
	link_close(other);
	take_over_socket_close(&sock);
	store_clear(&store);
	free(h);
	free(other);
	cr_assert_eq(fd_count(), fds_before, "descriptors are left open");
}

TestSuite(keeper_hand_over, .init = setup, .fini = finish);

static void store_many(size_t count, size_t name_bytes)
{
	char name[FD_NAME_BYTES_MAX + 1];

	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%0*zu", (int)name_bytes, i);
		cr_assert_eq(store_add(&store, memfd_create("", MFD_CLOEXEC), name), 1);
	}
}

static void ask(const char *text)
{
	cr_assert_eq(link_say(other, LINK_ASK, text), 0);
}

/* The other keeper asks, the program has ended, and this keeper begins to send. */
static void begin(const char *question)
{
	ask(question);
	cr_assert_eq(hand_over_go_on(h, &store), HAND_OVER_STOP);
	cr_assert_eq(hand_over_begin(h, &store, &sock, 1000), HAND_OVER_GO_ON);
}

/* The same with more descriptors and names than the socket's buffer takes. */
static void begin_with_full_buffer(size_t count)
{
	store_many(count, 250);
	setsockopt(h->link.sock, SOL_SOCKET, SO_SNDBUF, &(int){32500}, sizeof(int));
	begin("1 1000 0");
	cr_expect_lt(h->sent, count, "all of it fits into the buffer, and nothing is tested");
}

/* All is sent and received; returns how many descriptors and packets with descriptors of the store came. */
static size_t receive_all(size_t *ret_packets)
{
	size_t count = 0;

	*ret_packets = 0;
	for (;;) {
		int r = link_receive(other);

		if (r == -EAGAIN)
			cr_assert_eq(hand_over_go_on(h, &store), HAND_OVER_GO_ON);
		else if (link_text(other, LINK_END))
			return count;
		else if (link_text(other, LINK_STORE))
			count += other->packet.fd_count, ++*ret_packets;
	}
}

static void send_all(void)
{
	size_t packets;

	begin("1 1000 0");
	receive_all(&packets);
	cr_assert_eq(hand_over_go_on(h, &store), HAND_OVER_GO_ON);
	cr_assert_eq(h->step, HAND_OVER_WAITING);
}

Test(keeper_hand_over, more_than_a_packet_takes_come_in_several)
{
	size_t packets;

	store_many(600, 4);
	begin("1 600 0");
	cr_expect_eq(receive_all(&packets), 600);
	cr_expect_eq(packets, 3, "253 descriptors each at most");
}

/* More than the socket's buffer takes: the rest is sent when the other keeper has read. */
Test(keeper_hand_over, long_names_wait_for_the_other_keeper)
{
	size_t packets;

	begin_with_full_buffer(500);
	cr_expect_eq(receive_all(&packets), 500);
}

/* The other keeper has not read for so long that the buffer is full. It must not take the end of the connection for the death of this
 * one, and go on with the part that it has. */
Test(keeper_hand_over, a_refusal_arrives_behind_a_full_buffer)
{
	bool refused = false;

	begin_with_full_buffer(500);
	cr_expect_eq(hand_over_late(h), HAND_OVER_FAILED);
	while (link_receive(other) == 1)
		refused = link_text(other, LINK_NO) != NULL;
	cr_expect(refused, "the last packet is: %.20s", other->text);
}

Test(keeper_hand_over, what_can_not_be_sent_is_not_handed_over)
{
	store_many(1, 4);
	ask("1 1000 0");
	cr_assert_eq(hand_over_go_on(h, &store), HAND_OVER_STOP);
	link_close(other);
	cr_expect_eq(hand_over_begin(h, &store, &sock, 1000), HAND_OVER_FAILED);
	connect_both();
	ask("1 1000 0");
	cr_assert_eq(hand_over_go_on(h, &store), HAND_OVER_STOP);
	close(store.entries[0].fd);
	cr_expect_eq(hand_over_begin(h, &store, &sock, 1000), HAND_OVER_FAILED);
	cr_expect(link_receive(other) == 1 && link_text(other, LINK_BEGIN));
	cr_expect(link_receive(other) == 1 && link_text(other, LINK_NO), "%s", other->text);
	store.count = 0;
}

/* A state that is no memfd can't be copied. */
Test(keeper_hand_over, without_a_copy_of_the_state_nothing_is_handed_over)
{
	int ends[2];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	cr_assert_eq(store_add(&store, ends[0], STORE_STATE_NAME), 1);
	ask("1 1000 0");
	cr_assert_eq(hand_over_go_on(h, &store), HAND_OVER_STOP);
	cr_expect_eq(hand_over_begin(h, &store, &sock, 1000), HAND_OVER_FAILED);
	close(ends[1]);
}

Test(keeper_hand_over, one_that_does_not_take_in_time_has_nothing)
{
	store_many(3, 4);
	send_all();
	cr_expect_eq(h->deadline_ms, 1000 + HAND_OVER_MS);
	cr_expect_eq(hand_over_late(h), HAND_OVER_FAILED);
	cr_expect_eq(link_say(other, LINK_TAKEN, ""), -EPIPE);
	cr_expect(link_receive(other) == 1 && link_text(other, LINK_NO));
	cr_expect_eq(link_receive(other), 0);
}

Test(keeper_hand_over, one_that_took_at_the_last_moment_has_it)
{
	store_many(3, 4);
	send_all();
	cr_assert_eq(link_say(other, LINK_TAKEN, ""), 0);
	cr_expect_eq(hand_over_late(h), HAND_OVER_DONE);
	cr_expect(link_receive(other) == 1 && link_text(other, LINK_NO));
	cr_expect(link_receive(other) == 1 && link_text(other, LINK_YOURS));
}

Test(keeper_hand_over, one_that_took_and_is_gone_has_nothing)
{
	store_many(3, 4);
	send_all();
	cr_assert_eq(link_say(other, LINK_TAKEN, ""), 0);
	link_close(other);
	cr_expect_eq(hand_over_late(h), HAND_OVER_FAILED);
}

Test(keeper_hand_over, what_was_said_before_the_end_is_heard)
{
	store_many(3, 4);
	send_all();
	/* The other keeper has not read all that it was sent, and says goodbye. */
	cr_assert_eq(link_say(&h->link, LINK_NO, ""), 0);
	cr_assert_eq(link_say(other, LINK_BACK, "its disk is full"), 0);
	link_close(other);
	cr_assert_eq(link_receive(&h->link), 1);
	cr_expect_str_eq(link_text(&h->link, LINK_BACK), "its disk is full");
	cr_expect_null(link_text(&h->link, "BAC"));
	cr_expect_eq(link_receive(&h->link), 0);
}

Test(keeper_hand_over, a_copy_of_a_state_has_its_bytes_holes_and_seals)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int state = memfd_create("", MFD_CLOEXEC | MFD_ALLOW_SEALING), copy;
	struct stat first, second;
	char text[6] = "";

	cr_assert_eq(ftruncate(state, 64 << 20), 0);
	cr_assert_eq(pwrite(state, "begin", 5, 0), 5);
	cr_assert_eq(pwrite(state, "young", 5, (40 << 20) + 123), 5);
	cr_assert_eq(fcntl(state, F_ADD_SEALS, seals), 0);
	copy = state_copy(state);
	cr_assert_geq(copy, 0);
	cr_expect_eq(fcntl(copy, F_GET_SEALS), seals);
	cr_expect(fstat(state, &first) == 0 && fstat(copy, &second) == 0);
	cr_expect_eq(first.st_size, second.st_size);
	cr_expect_eq(first.st_blocks, second.st_blocks, "the holes are filled");
	cr_expect(pread(copy, text, 5, 0) == 5 && strcmp(text, "begin") == 0);
	cr_expect(pread(copy, text, 5, (40 << 20) + 123) == 5 && strcmp(text, "young") == 0);
	cr_expect(pwrite(copy, "other", 5, 0) == 5 && pread(state, text, 5, 0) == 5);
	cr_expect_str_eq(text, "begin");
	close(copy);
	close(state);
}

Test(keeper_hand_over, an_empty_state_and_one_without_holes_are_copied)
{
	int state = memfd_create("", MFD_CLOEXEC | MFD_ALLOW_SEALING), copy = state_copy(state);
	struct stat status;

	cr_assert(copy >= 0 && fstat(copy, &status) == 0);
	cr_expect_eq(status.st_size, 0);
	close(copy);
	cr_assert_eq(pwrite(state, "x", 1, 0), 1);
	copy = state_copy(state);
	cr_assert(copy >= 0 && fstat(copy, &status) == 0);
	cr_expect_eq(status.st_size, 1);
	close(copy);
	close(state);
}
