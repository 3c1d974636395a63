/* A link between two nodes that have proved who they are. tests/unit/peer_stranger.c has all who can't. */
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static const struct wanted node1 = {.names = "DNS:node1.example,IP:127.0.0.1", .begins = -60, .ends = 3600};

static struct authority authority;
static struct peer_keys *keys; /* of both sides */
static struct accepting server;
static struct link *client;
static struct error error;

static void begin(void)
{
	certificates_begin();
	authority = authority_make("authority");
	certificate_make(&authority, "node1", &node1);
}

static void end(void)
{
	link_close(client);
	accepting_end(&server);
	peer_keys_release(keys);
	authority_clear(&authority);
	certificates_end();
}

/* A link with these keys on both sides. */
static void join(struct peer_settings settings, const char *name)
{
	keys = keys_of(settings);
	accepting_begin(&server, keys, 5000);
	cr_assert_eq(pair_connect(&server, keys, name, &client, &error), 0, "%s", error.message);
	accepting_wait(&server);
	cr_assert_eq(server.result, 0, "%s", server.error.message);
}

static void join_by_certificates(void)
{
	join(settings_of("node1", "authority"), "node1.example");
}

TestSuite(link, .init = begin, .fini = end);

static void expect_passage(struct link *from, struct link *to)
{
	char bytes[6] = "";

	cr_expect_eq(link_write(from, "hello", 6, 1000, &error), 0, "%s", error.message);
	cr_expect_eq(link_read(to, bytes, 6, 1000, &error), 0, "%s", error.message);
	cr_expect_str_eq(bytes, "hello");
}

Test(link, passes_bytes_both_ways_between_nodes_with_certificates)
{
	join_by_certificates();
	expect_passage(client, server.link);
	expect_passage(server.link, client);
	cr_expect_str_eq(link_peer_name(client), "node1.example");
	cr_expect_str_eq(link_peer_name(server.link), "node1.example");
	cr_expect_str_eq(link_peer_address(server.link), "127.0.0.1");
	cr_expect_eq(strncmp(link_peer(client), "127.0.0.1:", 10), 0, "%s", link_peer(client));
}

Test(link, takes_the_address_of_the_host_for_its_name)
{
	join(settings_of("node1", "authority"), NULL);
	expect_passage(client, server.link);
}

Test(link, passes_bytes_between_nodes_with_a_secret)
{
	certificates_write("secret", "0123456789abcdef0123456789abcdef", 0600);
	join(settings_of_secret("secret"), NULL);
	expect_passage(client, server.link);
	expect_passage(server.link, client);
	cr_expect_str_eq(link_peer_name(client), "", "a secret tells no name");
}

/* All nodes get the new secret as their second one, then it becomes the first one of each in turn. */
Test(link, a_secret_is_changed_without_a_break)
{
	struct peer_settings old_first, new_first;
	struct peer_keys *others;

	certificates_write("old", "old-old-old-old-old-old-old-old-", 0600);
	certificates_write("new", "new-new-new-new-new-new-new-new-", 0600);
	old_first = settings_of_secret("old");
	new_first = settings_of_secret("new");
	peer_settings_set(&old_first, "secret", certificates_path("new"), &error);
	peer_settings_set(&new_first, "secret", certificates_path("old"), &error);
	keys = keys_of(old_first);
	others = keys_of(new_first);
	accepting_begin(&server, keys, 5000);
	cr_expect_eq(pair_connect(&server, others, NULL, &client, &error), 0, "%s", error.message);
	peer_keys_release(others);
}

Test(link, knows_the_names_that_may_take)
{
	struct peer_list none = {0}, others = {{"node2.example", "*.other"}, 2},
			 both = {{"x", "NODE1.example"}, 2}, domain = {{"*.example"}, 1},
			 too_deep = {{"*.node1.example"}, 1};

	join_by_certificates();
	cr_expect(link_peer_matches(server.link, &none));
	cr_expect_not(link_peer_matches(server.link, &others));
	cr_expect(link_peer_matches(server.link, &both));
	cr_expect(link_peer_matches(server.link, &domain));
	cr_expect_not(link_peer_matches(server.link, &too_deep));
}

/* ---- the end ---- */

Test(link, an_end_is_told_from_a_cut)
{
	char byte;

	join_by_certificates();
	client = link_close(client);
	cr_expect_eq(link_read(server.link, &byte, 1, 1000, &error), -ENOLINK, "%s", error.message);
}

Test(link, an_end_in_the_middle_is_a_cut)
{
	char bytes[8];

	join_by_certificates();
	cr_assert_eq(link_write(client, "1234", 4, 1000, &error), 0);
	client = link_close(client);
	cr_expect_eq(link_read(server.link, bytes, 8, 1000, &error), -ECONNRESET, "%s", error.message);
}

/* Somebody on the way ends the connection: TLS's own end is missing. */
Test(link, a_connection_that_somebody_cuts_is_no_end)
{
	char byte;

	join_by_certificates();
	shutdown(link_fd(client), SHUT_RDWR);
	cr_expect_eq(link_read(server.link, &byte, 1, 1000, &error), -ECONNRESET, "%s", error.message);
}

Test(link, a_peer_that_says_nothing_is_not_waited_for)
{
	char byte;

	join_by_certificates();
	cr_expect_eq(link_read(server.link, &byte, 1, 20, &error), -ETIMEDOUT, "%s", error.message);
}

static atomic_bool drips = true;

static void *drip(void *user)
{
	struct error unused;

	while (atomic_load(&drips) && link_write(user, "x", 1, 1000, &unused) == 0)
		nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000}, NULL);
	return NULL;
}

/* Each byte comes soon enough, but all of them would take 10 s. */
Test(link, a_peer_that_drips_is_not_waited_for)
{
	uint64_t begin_ms = clock_steady_ms();
	char bytes[1000];
	pthread_t thread;

	join_by_certificates();
	pthread_create(&thread, NULL, drip, client);
	cr_expect_eq(link_read(server.link, bytes, sizeof(bytes), 1000, &error), -ETIMEDOUT, "%s",
		     error.message);
	cr_expect_lt(clock_steady_ms() - begin_ms, 5000);
	atomic_store(&drips, false);
	pthread_join(thread, NULL);
}

Test(link, a_peer_that_reads_nothing_is_not_waited_for)
{
	static char zeros[1 << 20];
	int r = 0;

	join_by_certificates();
	for (int i = 0; r == 0 && i < 64; i++)
		r = link_write(server.link, zeros, sizeof(zeros), 20, &error);
	cr_expect_eq(r, -ETIMEDOUT, "%s", error.message);
}

static void *read_one(void *user)
{
	char byte;

	*(int *)user = link_read(server.link, &byte, 1, 60000, &error);
	return NULL;
}

Test(link, an_interrupt_wakes_whoever_reads)
{
	pthread_t thread;
	int result = 0;
	char byte;

	join_by_certificates();
	pthread_create(&thread, NULL, read_one, &result);
	link_interrupt(server.link);
	pthread_join(thread, NULL);
	cr_expect_eq(result, -ECANCELED, "%s", error.message);
	cr_expect_eq(link_read(server.link, &byte, 1, 60000, &error), -ECANCELED);
	cr_expect_eq(link_write(server.link, "x", 1, 60000, &error), -ECANCELED);
}

/* ---- two threads ---- */

#define FLOOD (4 << 20)

struct flow {
	struct link *link;
	char *bytes;
	struct error error;
	int result;
};

static void *write_all(void *user)
{
	struct flow *flow = user;

	flow->result = link_write(flow->link, flow->bytes, FLOOD, 5000, &flow->error);
	return NULL;
}

static void *read_all(void *user)
{
	struct flow *flow = user;

	flow->result = link_read(flow->link, flow->bytes, FLOOD, 5000, &flow->error);
	return NULL;
}

Test(link, waits_no_longer_than_its_limit)
{
	uint64_t begin_ms = clock_steady_ms();
	char byte;

	join_by_certificates();
	link_limit(client, clock_steady_ms() + 50);
	cr_expect_eq(link_read(client, &byte, 1, 60000, &error), -ETIMEDOUT, "%s", error.message);
	cr_expect_lt(clock_steady_ms() - begin_ms, 30000);
}

/* On both sides one thread writes and one reads, more than fits the sockets' buffers. */
Test(link, reads_and_writes_at_the_same_time)
{
	struct flow flows[4] = {{.link = NULL}};
	pthread_t threads[4];

	join_by_certificates();
	for (int i = 0; i < 4; i++) {
		flows[i].link = i < 2 ? client : server.link;
		flows[i].bytes = malloc(FLOOD);
		memset(flows[i].bytes, i, FLOOD);
		pthread_create(&threads[i], NULL, i % 2 == 0 ? write_all : read_all, &flows[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		cr_expect_eq(flows[i].result, 0, "%s", flows[i].error.message);
	}
	cr_expect_eq(memcmp(flows[0].bytes, flows[3].bytes, FLOOD), 0);
	cr_expect_eq(memcmp(flows[2].bytes, flows[1].bytes, FLOOD), 0);
	for (int i = 0; i < 4; i++)
		free(flows[i].bytes);
}
