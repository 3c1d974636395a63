/* A loader that takes passes on what it has, to nodes that may take. */
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include "loader/peer/peer_part.h"
#include "peer/exchange.h"
#include "peer/places.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static const struct wanted node = {.names = "DNS:node.example,IP:127.0.0.1", .begins = -60, .ends = 3600};

static struct authority authority;
static struct peer_settings settings; /* of the loader */
static struct peer_keys *keys;
static struct peer_serve *serve;
static struct peer_offer offer = {.ref = "m@v1"};
static struct error error;

static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	certificates_begin();
	authority = authority_make("authority");
	certificate_make(&authority, "node", &node);
	keys = keys_of(settings_of("node", "authority"));
}

static void end(void)
{
	serve = peer_serve_end(serve);
	peer_settings_clear(&settings);
	peer_keys_release(keys);
	authority_clear(&authority);
	certificates_end();
}

TestSuite(peer_serve, .init = begin, .fini = end);

static void serve_to(const char *name)
{
	cr_assert_eq(peer_settings_set(&settings, "names", name, &error), 0, "%s", error.message);
	cr_assert_eq(peer_settings_set(&settings, "listen", "127.0.0.1:9465", &error), 0);
	cr_assert_eq(peer_serve_begin(keys, &settings, &offer, NULL, &serve, &error), 0, "%s", error.message);
}

/* Returns what the loader answers to the hello of a node with the certificate above. */
static int greet(void)
{
	struct link_target target = {.host = "127.0.0.1"};
	struct peer_hello_result hello;
	struct peer_message message;
	struct link *link;
	int r;

	target.port = peer_serve_port(serve);
	cr_assert_eq(link_connect(keys, &target, LINK_HANDSHAKE_MS, &link, &error), 0, "%s", error.message);
	r = peer_greet(link, "test", &hello, &message, &error);
	if (r == 0)
		peer_message_clear(&message);
	link_close(link);
	return r;
}

Test(peer_serve, serves_nothing_without_an_address_to_listen_at)
{
	cr_expect_eq(peer_serve_begin(keys, &settings, &offer, NULL, &serve, &error), -ENOTSUP);
	cr_expect(strstr(error.message, "no `listen`"), "%s", error.message);
}

Test(peer_serve, listens_at_the_address_of_listen_alone)
{
	struct link_target target = {.host = "127.0.0.2"};
	struct link *link;

	serve_to("*.example");
	target.port = peer_serve_port(serve);
	cr_expect_neq(target.port, 9465, "gpuwm-peer's own");
	cr_expect_eq(link_connect(keys, &target, LINK_HANDSHAKE_MS, &link, &error), -ECONNREFUSED);
}

Test(peer_serve, serves_a_node_that_is_named)
{
	serve_to("*.example");
	cr_expect_eq(greet(), 0, "%s", error.message);
}

Test(peer_serve, refuses_a_node_that_is_not_named)
{
	serve_to("other.example");
	cr_expect_eq(greet(), -EACCES, "%s", error.message);
	cr_expect(strstr(error.message, "has none of the names that may take"), "%s", error.message);
}

#define MANY (3 * PLACES_UNKNOWN_MAX)

Test(peer_serve, strangers_make_room_for_a_node)
{
	int fds[MANY];

	serve_to("*.example");
	for (unsigned i = 0; i < MANY; i++)
		fds[i] = plain_connect(peer_serve_port(serve));
	cr_expect_eq(greet(), 0, "%s", error.message);
	for (unsigned i = 0; i < MANY; i++)
		close(fds[i]);
}

/* As a child, since a thread's own uid would be that of this process. Returns it when it is connected; it stays until it is killed. */
static pid_t flood_as(uid_t uid)
{
	int ready[2];
	char byte;
	pid_t child;

	cr_assert_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		if (setresuid(uid, uid, uid) != 0)
			_exit(1);
		for (unsigned i = 0; i < MANY; i++)
			plain_connect(peer_serve_port(serve));
		(void)!write(ready[1], "", 1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	cr_expect_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

/* Whoever floods the port takes the places of its own user: a connection that came before all of them stays. */
Test(peer_serve, a_flood_of_one_user_costs_no_other_user_a_place)
{
	struct pollfd silent = {.events = POLLIN};
	pid_t flood;

	if (getuid() != 0)
		cr_skip("only root can be another user");
	serve_to("*.example");
	silent.fd = plain_connect(peer_serve_port(serve));
	flood = flood_as(NOBODY);
	cr_expect_eq(greet(), 0, "so all that came before it were accepted: %s", error.message);
	cr_expect_eq(poll(&silent, 1, 0), 0, "it was not ended");
	close(silent.fd);
	kill(flood, SIGKILL);
	waitpid(flood, NULL, 0);
}

/* Each part has a connection of its own, and a lane at least; and somebody asks questions beside. */
Test(peer_serve, has_places_for_a_load_of_as_many_parts_as_may_be)
{
	const unsigned connections = 2 * PARTS_PER_VERSION_MAX;

	cr_expect_lt(connections, PLACES_PER_NODE_MAX);
	cr_expect_lt(connections, PLACES_MAX);
}
