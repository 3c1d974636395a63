/* How many connections there may be, and which one gives way. */
#include "peer/listener.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static struct places places;
static struct place *taken[PLACES_MAX + 1];
static int ours[PLACES_MAX + 1], others[PLACES_MAX + 1];
static int listener;
static struct sockaddr_in at = {.sin_family = AF_INET};

static void begin(void)
{
	socklen_t bytes = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&at, bytes), 0);
	cr_assert_eq(listen(listener, 128), 0);
	getsockname(listener, (struct sockaddr *)&at, &bytes);
	places_begin(&places);
}

TestSuite(places, .init = begin);

/* A connection from 127.0.0.`host`. Returns whether it got a place. */
static bool come(unsigned i, unsigned host)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + host)};

	others[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(others[i], (struct sockaddr *)&from, sizeof(from)), 0);
	cr_assert_eq(connect(others[i], (struct sockaddr *)&at, sizeof(at)), 0);
	ours[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	taken[i] = places_take(&places, ours[i]);
	return taken[i] != NULL;
}

static bool was_cut(unsigned i)
{
	char byte;

	return recv(others[i], &byte, 1, MSG_DONTWAIT) == 0;
}

static void know(unsigned i)
{
	places_known(&places, taken[i], (struct link *)&places); /* no link is looked at */
}

Test(places, an_address_has_few_for_those_who_are_not_known)
{
	for (unsigned i = 0; i < PLACES_UNKNOWN_PER_ADDRESS_MAX; i++)
		cr_assert(come(i, 10));
	cr_expect_not(come(PLACES_UNKNOWN_PER_ADDRESS_MAX, 10));
	cr_expect(come(PLACES_UNKNOWN_PER_ADDRESS_MAX + 1, 11), "another address has its own");
	cr_expect_eq(places_refused(&places), 1);
	cr_expect_eq(places_refused(&places), 0);
	know(0);
	cr_expect(come(PLACES_UNKNOWN_PER_ADDRESS_MAX + 2, 10));
}

Test(places, of_all_that_are_not_known_the_oldest_gives_way)
{
	for (unsigned i = 0; i < PLACES_UNKNOWN_MAX; i++)
		cr_assert(come(i, 10 + i));
	know(0);
	cr_assert(come(PLACES_UNKNOWN_MAX, 200));
	cr_expect_not(was_cut(1), "there is room");
	cr_assert(come(PLACES_UNKNOWN_MAX + 1, 201));
	cr_expect_not(was_cut(0), "it is known");
	cr_expect(was_cut(1));
	cr_expect_not(was_cut(2));
}

Test(places, an_address_has_an_end_also_for_those_who_are_known)
{
	for (unsigned i = 0; i < PLACES_PER_ADDRESS_MAX; i++) {
		cr_assert(come(i, 10));
		know(i);
	}
	cr_expect_not(come(PLACES_PER_ADDRESS_MAX, 10));
	places_give(&places, taken[0]);
	cr_expect(come(PLACES_PER_ADDRESS_MAX, 10));
}

Test(places, there_is_an_end_in_all)
{
	for (unsigned i = 0; i < PLACES_MAX; i++) {
		cr_assert(come(i, 10 + i % 8));
		know(i);
	}
	cr_expect_not(come(PLACES_MAX, 200));
	cr_expect_eq(places_count(&places), PLACES_MAX);
}

Test(places, waits_for_those_that_are_left)
{
	cr_assert(come(0, 10));
	places_drain(&places, 0);
	cr_expect_eq(places_count(&places), 1);
	places_give(&places, taken[0]);
	places_drain(&places, 60000);
	places_clear(&places);
	places_end(&places);
}
