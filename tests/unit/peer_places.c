/* How many connections there may be, and which one gives way. */
#include "peer/link_internal.h"
#include "peer/listener.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct places places;
static struct place *taken[PLACES_MAX + 1];
static int ours[PLACES_MAX + 1], others[PLACES_MAX + 1];
static int listener;
static struct error error;
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

/* A connection from an origin. */
static void come_from(unsigned i, const struct origin *origin)
{
	others[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(connect(others[i], (struct sockaddr *)&at, sizeof(at)), 0);
	ours[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	taken[i] = places_take(&places, ours[i], origin);
	cr_assert(taken[i]);
}

static void come(unsigned i, unsigned host)
{
	const struct origin origin = {.family = AF_INET, .address = {10, 0, 0, (uint8_t)host}};

	come_from(i, &origin);
}

static bool was_cut(unsigned i)
{
	char byte;

	return recv(others[i], &byte, 1, MSG_DONTWAIT) == 0;
}

static struct link link_of[2] = {{.shown = "10.0.0.1:9465"},
				 {.shown = "10.0.0.2:9465", .name = "node2.example"}};

static int know_as(unsigned i, struct link *link)
{
	return places_know(&places, taken[i], link, &error);
}

/* Its thread ends, as it does when the connection was cut. */
static void leave(unsigned i)
{
	places_give(&places, taken[i]);
	close(ours[i]);
}

/* As many nodes behind one address get in as take turns: one that is silent does not keep others out. */
Test(places, the_oldest_silent_one_of_an_address_gives_way)
{
	come(PLACES_MAX, 11);
	for (unsigned i = 0; i < PLACES_UNKNOWN_PER_ORIGIN_MAX; i++)
		come(i, 10);
	cr_expect_not(was_cut(0), "there is room");
	come(PLACES_UNKNOWN_PER_ORIGIN_MAX, 10);
	cr_expect(was_cut(0));
	cr_expect_not(was_cut(1));
	cr_expect_not(was_cut(PLACES_MAX), "another address has its own");
	cr_expect_eq(places_refused(&places), 1);
	cr_expect_eq(places_refused(&places), 0);
	cr_expect_eq(know_as(1, &link_of[0]), 0);
	come(PLACES_UNKNOWN_PER_ORIGIN_MAX + 1, 10);
	cr_expect_not(was_cut(2), "there is room, since one is known");
}

/* The one that came first is of another user. */
Test(places, a_user_of_this_machine_takes_no_other_users_place)
{
	const struct origin other = {.has_uid = true, .uid = 1000}, own = {.has_uid = true, .uid = 1001};

	come_from(0, &other);
	for (unsigned i = 1; i <= 60; i++)
		come_from(i, &own);
	cr_expect_not(was_cut(0));
	cr_expect(was_cut(1));
}

Test(places, the_origin_with_most_silent_ones_gives_way)
{
	for (unsigned i = 0; i < PLACES_UNKNOWN_MAX; i++)
		come(i, i < 4 ? 1 : 10 + i / 2);
	cr_expect_not(was_cut(0), "there is room");
	come(PLACES_UNKNOWN_MAX, 200);
	cr_expect(was_cut(0), "its address has 4 of them, all others have 2");
	cr_expect_not(was_cut(1));
	cr_expect_not(was_cut(4));
}

Test(places, those_that_leave_have_an_end)
{
	const struct origin origin = {.family = AF_INET};
	unsigned i = 0;

	for (; i < PLACES_UNKNOWN_PER_ORIGIN_MAX + PLACES_LEAVING_MAX; i++)
		come(i, 10);
	cr_expect_null(places_take(&places, ours[0], &origin));
	leave(0);
	come(i, 10);
}

static void *leaves(void *user_data)
{
	leave(*(unsigned *)user_data);
	return NULL;
}

#define WAITS 20

Test(places, a_new_one_waits_for_those_that_leave)
{
	unsigned i = 0;
	pthread_t thread;

	for (; i < PLACES_UNKNOWN_PER_ORIGIN_MAX + PLACES_LEAVING_MAX; i++)
		come(i, 10);
	for (unsigned first = 0; first < WAITS; first++) {
		pthread_create(&thread, NULL, leaves, &first);
		come(i++, 10);
		pthread_join(thread, NULL);
	}
}

Test(places, a_node_has_an_end_also_when_it_is_known)
{
	for (unsigned i = 0; i < PLACES_PER_NODE_MAX; i++) {
		come(i, 10);
		cr_assert_eq(know_as(i, &link_of[0]), 0);
	}
	come(PLACES_PER_NODE_MAX, 10);
	cr_expect_eq(know_as(PLACES_PER_NODE_MAX, &link_of[0]), -EBUSY);
	cr_expect_str_eq(error.message,
			 "this node serves 10.0.0.1:9465 144 connections, and one node gets no more");
	places_forget(&places, taken[0]);
	cr_expect_eq(know_as(PLACES_PER_NODE_MAX, &link_of[0]), 0);
}

/* One key does not get all places from many addresses. */
Test(places, a_certificate_has_an_end_at_all_addresses_together)
{
	for (unsigned i = 0; i <= PLACES_PER_NODE_MAX; i++) {
		come(i, 10 + i % 8);
		cr_assert_eq(know_as(i, &link_of[1]), i < PLACES_PER_NODE_MAX ? 0 : -EBUSY);
	}
	cr_expect(strstr(error.message, "or others with its certificate"), "%s", error.message);
}

Test(places, there_is_an_end_in_all)
{
	for (unsigned i = 0; i < PLACES_MAX; i++) {
		come(i, 10 + i % 8);
		cr_assert_eq(know_as(i, &link_of[0]), 0);
	}
	come(PLACES_MAX, 200);
	cr_expect_eq(know_as(PLACES_MAX, &link_of[0]), -EBUSY);
	cr_expect_str_eq(error.message, "this node serves 256 connections, and no more are served");
}

Test(places, waits_for_those_that_are_left)
{
	come(0, 10);
	places_drain(&places, 0);
	cr_expect_eq(places_count(&places), 1);
	places_give(&places, taken[0]);
	places_drain(&places, 60000);
	places_clear(&places);
	places_end(&places);
}
