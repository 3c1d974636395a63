/* Connecting to nodes of which some are silent. */
#include "loader/peer/peer_dial.h"
#include "tests/support/loader/fake_peer.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fake_peer peer;
static struct peer_places places;
static struct peer_dialled dialled;
static int silent = -1; /* a socket that accepts and says nothing */
static unsigned looks, looks_max;

static void begin(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	fake_peer_begin(&peer);
	silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(bind(silent, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(silent, 64) == 0);
}

static void end(void)
{
	close(silent);
	fake_peer_end(&peer);
}

TestSuite(dial, .init = begin, .fini = end, .timeout = 60);

static unsigned port_of(int sock)
{
	struct sockaddr_in at;
	socklen_t bytes = sizeof(at);

	cr_assert_eq(getsockname(sock, (struct sockaddr *)&at, &bytes), 0);
	return ntohs(at.sin_port);
}

static void add(unsigned port)
{
	struct peer_place *place = &places.items[places.count++];

	snprintf(place->host, sizeof(place->host), "127.0.0.1");
	place->port = port;
}

static void add_silent(unsigned count)
{
	while (count-- > 0)
		add(port_of(silent));
}

static int look(void *user_data)
{
	(void)user_data;
	return looks_max && ++looks >= looks_max ? -ECANCELED : 0;
}

static int next(struct peer_dial *dial)
{
	return peer_dial_next(dial, look, NULL, &dialled);
}

static struct peer_dial *dial_all(void)
{
	struct peer_dial *dial = peer_dial_new(peer.keys, &places, false);

	cr_assert(dial);
	return dial;
}

/* They would take LINK_HANDSHAKE_MS each, one after another. */
Test(dial, does_not_wait_for_those_that_are_silent)
{
	struct peer_dial *dial;

	add_silent(3);
	add(peer.port);
	add(peer.port);
	dial = dial_all();
	cr_assert_eq(next(dial), 1);
	cr_expect_eq(dialled.place, 3);
	cr_assert(dialled.link, "%s", dialled.error.message);
	link_close(dialled.link);
	peer_dial_free(dial);
	cr_expect_eq(atomic_load(&peer.connections), 1, "nobody else is bothered");
}

Test(dial, tells_of_each_node_once)
{
	struct peer_dial *dial;

	add(1); /* nobody is there */
	add(peer.port);
	add(1);
	dial = dial_all();
	for (size_t i = 0; i < places.count; i++) {
		cr_assert_eq(next(dial), 1);
		cr_expect_eq(dialled.place, i, "each is tried when the one before it has failed or was used");
		cr_expect_eq(!dialled.link, i != 1);
		cr_expect_eq(dialled.error.code, i == 1 ? 0 : -ECONNREFUSED, "%s", dialled.error.message);
		link_close(dialled.link);
	}
	cr_expect_eq(next(dial), 0);
	peer_dial_free(dial);
}

Test(dial, asks_busy_nodes_only_if_it_is_to)
{
	struct peer_dial *dial;

	for (int i = 0; i < 3; i++)
		add(peer.port);
	places.items[0].why.code = -ENOENT;
	places.items[1].why.code = -EBUSY;
	dial = peer_dial_new(peer.keys, &places, true);
	cr_assert_eq(next(dial), 1);
	cr_expect_eq(dialled.place, 1);
	link_close(dialled.link);
	cr_expect_eq(next(dial), 0);
	peer_dial_free(dial);
}

Test(dial, tries_so_many_at_once_and_no_more)
{
	struct peer_dial *dial;

	add_silent(PEER_DIAL_MOST);
	add(peer.port);
	dial = dial_all();
	cr_assert_eq(next(dial), 1);
	cr_expect_neq(dialled.place, PEER_DIAL_MOST, "it has to wait for one of the others to fail");
	cr_expect_eq(dialled.error.code, -ETIMEDOUT, "%s", dialled.error.message);
	do
		cr_assert_eq(next(dial), 1);
	while (!dialled.link);
	cr_expect_eq(dialled.place, PEER_DIAL_MOST);
	link_close(dialled.link);
	peer_dial_free(dial);
}

Test(dial, ends_when_it_is_stopped)
{
	struct peer_dial *dial;

	add_silent(2);
	looks_max = 3;
	dial = dial_all();
	cr_expect_eq(next(dial), -ECANCELED);
	peer_dial_free(dial);
}
