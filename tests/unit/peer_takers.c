/* Who is sent on to whom. */
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include "peer/serve.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <time.h>

static const struct version_id first = {{1}}, second = {{2}};

static struct peer_keys *keys;
static struct accepting server;
static struct link *client;
static struct takers *takers;
static struct taker *entered[4];
static struct peer_redirect redirect;

static void begin(void)
{
	pair_by_secret(&server, &keys, &client);
	takers = takers_new(1);
}

static void end(void)
{
	for (int i = 0; i < 4; i++) {
		if (entered[i])
			takers_leave(takers, entered[i]);
	}
	takers_redirect_clear(&redirect);
	takers_free(takers);
	link_close(client);
	accepting_end(&server);
	peer_keys_release(keys);
	certificates_end();
}

TestSuite(takers, .init = begin, .fini = end);

/* A taker of this part; port 0: it serves nothing. */
static int enter(int place, const struct version_id *version, uint64_t rank, uint64_t port, bool stay)
{
	const struct peer_take_params params = {
		.version = version, .rank = rank, .serves = port ? &port : NULL, .stay = stay};

	takers_redirect_clear(&redirect);
	return takers_enter(takers, &params, client, &entered[place], &redirect);
}

Test(takers, the_first_one_takes_and_the_next_one_is_sent_to_it)
{
	cr_expect_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter(1, &first, 0, 102, false), 1);
	cr_expect_eq(redirect.port, 101);
	cr_expect_str_eq(redirect.host, "127.0.0.1");
}

Test(takers, another_part_and_another_version_have_takers_of_their_own)
{
	cr_expect_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter(1, &first, 1, 101, false), 0);
	cr_expect_eq(enter(2, &second, 0, 101, false), 0);
	cr_expect_eq(takers_count(takers), 3);
}

Test(takers, a_taker_that_serves_nothing_gets_nobody)
{
	cr_expect_eq(enter(0, &first, 0, 0, false), 0);
	cr_expect_eq(enter(1, &first, 0, 102, false), 0);
	cr_expect_eq(enter(2, &first, 0, 103, false), 1);
	cr_expect_eq(redirect.port, 102);
}

Test(takers, who_stays_is_not_sent_on)
{
	cr_expect_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter(1, &first, 0, 102, true), 0);
}

/* Its connection broke, and the server has not noticed yet. */
Test(takers, nobody_is_sent_to_itself)
{
	cr_expect_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter(1, &first, 0, 101, false), 0);
}

Test(takers, a_taker_that_left_gets_nobody)
{
	cr_expect_eq(enter(0, &first, 0, 101, false), 0);
	takers_leave(takers, entered[0]);
	entered[0] = NULL;
	cr_expect_eq(enter(1, &first, 0, 102, false), 0);
}

Test(takers, several_get_newcomers_in_turn)
{
	uint64_t ports[4];

	takers_limit(takers, 2);
	cr_expect_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter(1, &first, 0, 102, false), 0);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(enter(2, &first, 0, 103, false), 1);
		ports[i] = redirect.port;
	}
	cr_expect_neq(ports[0], ports[1]);
	cr_expect(ports[0] == ports[2] && ports[1] == ports[3]);
}

/* ---- those who find it slow -------------------------------------------------- */

/* A taker that gets so many bytes a second where it was redirected. */
static int enter_again(int place, uint64_t pace)
{
	const struct peer_take_params params = {.version = &first, .pace = &pace};

	takers_redirect_clear(&redirect);
	return takers_enter(takers, &params, client, &entered[place], &redirect);
}

/* Nobody knows yet whether there is more than the one who takes gets: it is tried once. */
Test(takers, one_who_finds_it_slow_is_sent_to_once)
{
	cr_assert_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter_again(1, 1000), 0);
	takers_leave(takers, entered[1]);
	entered[1] = NULL;
	cr_expect_eq(enter_again(2, 1000), -EALREADY);
}

Test(takers, one_who_finds_it_slow_is_redirected_to_a_faster_one)
{
	cr_assert_eq(enter(0, &first, 0, 101, false), 0);
	cr_assert_eq(enter(1, &first, 0, 102, true), 0);
	takers_count_bytes(takers, entered[1], UINT64_C(1) << 40);
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* it has a rate then */
	cr_expect_eq(enter_again(2, 1000000), 1);
	cr_expect_eq(redirect.port, 102);
}

/* The line was faster once, so it has room. */
Test(takers, one_who_finds_it_slow_is_sent_to_if_the_line_is_idle)
{
	cr_assert_eq(enter(0, &first, 0, 101, false), 0);
	cr_expect_eq(enter_again(1, 1000), 0);
	takers_count_bytes(takers, entered[0], UINT64_C(1) << 30);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 10000000}, NULL); /* a window */
	takers_count_bytes(takers, entered[0], 1);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 10000000}, NULL);
	cr_expect_eq(enter_again(2, UINT64_C(1) << 40), 0, "it sends one byte a second");
}
