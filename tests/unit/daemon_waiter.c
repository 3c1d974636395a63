/* What many waiting requests cost those who do not wait. */
#include "tests/support/daemon/server.h"

#include <time.h>

#define SESSIONS 15
#define EACH 60
#define ATTEMPTS 9
#define TIMES_MAX 25

TestSuite(waiter, .init = server_open, .fini = server_close);

/* So many that wait for this name, on connections of their own. */
static void crowd_gather(int socks[SESSIONS], const char *ref)
{
	for (int i = 0; i < SESSIONS; i++) {
		socks[i] = greeted(SESSION_WORKER);
		for (uint64_t n = 0; n < EACH; n++) {
			send_get(socks[i], 10 + n, ref, -1);
			turn();
		}
	}
	cr_assert_eq(server->clients.waiting, SESSIONS * EACH);
}

static void crowd_leave(const int socks[SESSIONS])
{
	for (int i = 0; i < SESSIONS; i++)
		close(socks[i]);
	TURN_UNTIL(server->clients.waiting == 0);
}

static double wake_s(const struct version *changed)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	waiters_wake(&server->clients, WAIT_READY, changed);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

/* The best of some, since others use the machine too. */
static double wake_beside(const char *ref, const struct version *changed)
{
	int socks[SESSIONS];
	double best = 1e9;

	crowd_gather(socks, ref);
	for (int i = 0; i < ATTEMPTS; i++) {
		double took = wake_s(changed);

		best = took < best ? took : best;
	}
	cr_assert_eq(server->clients.waiting, SESSIONS * EACH, "they wait for another version");
	crowd_leave(socks);
	return best;
}

/* To write the error of each of them anew took 67 times as long as passing it by. */
Test(waiter, those_who_wait_for_another_tag_cost_a_look)
{
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);
	double other_model = wake_beside("other@never", publish->version);
	double same_model = wake_beside("m@never", publish->version);

	cr_expect_lt(same_model, TIMES_MAX * other_model, "%.1f us and %.1f us", same_model * 1e6,
		     other_model * 1e6);
}
