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

/* An answer that can't be sent ends its session, in whatever step of work_settle that is. */
static void wake_ends(struct waiter *waiter, const struct version *changed, bool expired)
{
	(void)changed;
	(void)expired;
	session_end(waiter->request.session);
}

Test(waiter, a_session_that_ends_late_is_seen_before_the_loop_sleeps)
{
	const int sock = greeted(SESSION_WORKER);
	const struct request request = {.server = server, .session = server->net.sessions};
	struct waiter *waiter;

	cr_assert_eq(waiter_new(&request, WAIT_ROOM, -1, wake_ends, &waiter, NULL), 0);
	work_later(&server->work, LATER_ROOM);
	work_settle(&server->work);
	cr_expect_not_null(server->net.ended_sessions, "it ends below net_settle");
	cr_expect_eq(uv_backend_timeout(&server->loop), 0, "the loop does not sleep on it");
	work_settle(&server->work);
	cr_expect_null(server->net.ended_sessions);
	cr_expect_eq(server->clients.waiting, 0);
	close(sock);
}
