/* Asking nodes for a version: those that are busy, and those that do not have it. */
#include "loader/jobs.h"
#include "loader/work.h"
#include "service/peers.h"
#include "tests/support/loader/fake_peer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fake_peer peer;
static struct peer_settings settings;
static struct work work;
static int gpuwmd = -1; /* the other end, where nobody reads what the load tells */
static struct error error;

static const char *const devices[] = {"host"};

static void begin(void)
{
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	gpuwmd = pair[0];
	cr_assert_eq(connection_new(pair[1], &work.connection), 0);
	fake_peer_begin(&peer);
	cr_assert_eq(peer_settings_set(&settings, "secret", peer.secret, &error), 0);
}

static void end(void)
{
	free(work.plan);
	connection_free(work.connection);
	close(gpuwmd);
	peer_settings_clear(&settings);
	fake_peer_end(&peer);
}

TestSuite(peer_ask_load, .init = begin, .fini = end, .timeout = 60);

static void add_node(const char *host, unsigned port)
{
	char address[64];

	snprintf(address, sizeof(address), "%s:%u", host, port);
	cr_assert_eq(peer_settings_set(&settings, "peer", address, &error), 0);
}

/* A dry run only asks. */
static int ask(void)
{
	const struct job_load_params params = {
		.model = "m",
		.tag = "v1",
		.wish = {.source = "peer:///m@v1", .devices = {devices, 1}, .dry_run = true}};

	return peer_load_run(&params, &settings, &work, &error);
}

Test(peer_ask_load, waits_for_a_node_that_serves_as_many_as_it_can)
{
	peer.lie = LIE_FULL;
	peer.lies_until = 2;
	add_node("127.0.0.1", peer.port);
	cr_expect_eq(ask(), 0, "%s", error.message);
	cr_expect_geq(atomic_load(&peer.connections), 2);
}

/* As a connection is that gives way to others. A node that does not have the version is not asked again. */
Test(peer_ask_load, asks_again_after_a_connection_that_was_cut)
{
	peer.lie = LIE_CUT;
	peer.lies_until = 2;
	add_node("127.0.0.2", peer.port);
	add_node("127.0.0.1", peer.port);
	cr_expect_eq(ask(), 0, "%s", error.message);
	cr_expect_eq(atomic_load(&peer.empty_connections), 1);
}

Test(peer_ask_load, names_every_node_with_its_reason)
{
	add_node("127.0.0.2", peer.port);
	add_node("127.0.0.1", 1); /* nobody is there */
	add_node("127.0.0.3", peer.port);
	cr_expect_eq(ask(), -ECONNREFUSED);
	cr_expect_str_eq(error.message,
			 "none of 3 nodes gives m@v1: 2 do not have it; 127.0.0.1, port 1: Connection refused");
}

Test(peer_ask_load, says_that_nobody_has_it)
{
	add_node("127.0.0.2", peer.port);
	add_node("127.0.0.3", peer.port);
	cr_expect_eq(ask(), -ENOENT);
	cr_expect_str_eq(error.message, "none of 2 nodes gives m@v1: 2 do not have it");
}
