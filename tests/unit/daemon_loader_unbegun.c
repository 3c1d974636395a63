/* Loaders that end before they have begun their job, so that another one gets it, or just after that. */
#include "tests/support/daemon/service.h"

TestSuite(loader_unbegun, .init = open_service, .fini = close_service, .timeout = 120);

/* It was dead when the load came, and gpuwmd did not know that yet. */
Test(loader_unbegun, that_dies_before_it_begins_loses_no_load)
{
	struct job *job;
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(-1);
	close(sock);
	job = new_job();
	cr_expect_eq(job->state, JOB_RUNNING);
	sock = standby_with(-1);
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(server->work.jobs.running, 1);
	cr_expect_eq(server->work.jobs.queued, 0);
	cr_expect_eq(server->work.loaders->failures, 0);
	loader_ends(sock, 0, "");
	cr_expect_eq(job->state, JOB_DONE);
	close(sock);
	leave();
}

/* Its process lives, and is killed for it. */
Test(loader_unbegun, that_closes_its_connection_before_it_begins_loses_no_load)
{
	struct job *job;
	int sock, pidfd = child_pidfd();

	listen_for(SOCK_SEQPACKET, 4);
	config.loaders = 2;
	pool_start();
	sock = standby_with(pidfd);
	close(pidfd);
	job = new_job();
	cr_assert_eq(job->state, JOB_RUNNING);
	close(sock);
	sock = standby_with(-1);
	TURN_UNTIL(comes(sock) && strcmp(message.method, "job") == 0);
	cr_expect_eq(job->state, JOB_RUNNING);
	loader_ends(sock, 0, "");
	cr_expect_eq(job->state, JOB_DONE);
	child_dies();
	close(sock);
	leave();
}

/* The load itself may end them. */
Test(loader_unbegun, that_dies_before_it_begins_as_the_one_before_fails_its_load)
{
	struct job *job;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	close(standby_with(-1));
	job = new_job();
	for (int n = 0; n < LOAD_AGAIN_MAX; n++) {
		cr_assert_not(job_ended(job));
		close(standby_with(-1));
	}
	TURN_UNTIL(job_ended(job));
	expect_job_failed(job, "gpuwm-loader died", "journalctl");
	leave();
}

/* Whatever a loader asks gpuwmd, its load has begun: when the loader dies, the load fails. */
static void dies_after(void (*asks)(int sock))
{
	struct job *job;
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(-1);
	job = new_job();
	cr_assert(comes(sock));
	cr_expect_str_eq(message.method, "job");
	asks(sock);
	close(sock);
	TURN_UNTIL(job_ended(job));
	expect_job_failed(job, "gpuwm-loader died", "journalctl");
	leave();
}

static void for_memory(int sock)
{
	cr_assert_eq(ASK(sock, "publish_begin", TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST),
			 NUMBER("bytes", 4096)),
		     0, "%s", message.error.message);
}

Test(loader_unbegun, that_has_asked_for_memory_has_begun)
{
	dies_after(for_memory);
}

static void for_what_it_shares(int sock)
{
	cr_assert_lt(ASK(sock, "loader_resident", NUMBER("rank", 0), TEXT("device", DEVICE_HOST)), 0);
}

Test(loader_unbegun, that_has_asked_for_what_it_shares_has_begun)
{
	dies_after(for_what_it_shares);
}

/* Gives a loader the check of what a publisher handed in. Returns the loader's end. */
static int give_check(int *ret_publisher, int *ret_checker)
{
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	config.loaders = 2;
	pool_start();
	sock = standby_with(-1);
	*ret_publisher = greeted(SESSION_ADMIN);
	cr_assert_eq(ASK(*ret_publisher, "publish_begin", TEXT("name", "p@v1"), TEXT("device", DEVICE_HOST),
			 NUMBER("bytes", 4096)),
		     0, "%s", message.error.message);
	cr_assert_eq(packet_take_fd(&packet, 0, ret_checker), 0);
	cr_assert_eq(packet_send(*ret_checker, "x", 1, NULL, 0), 0);
	TURN_UNTIL(comes(sock) && strcmp(message.method, "job") == 0);
	return sock;
}

/* What the publisher handed in lies in its socket still, and gpuwmd has a copy of the checker's end. */
Test(loader_unbegun, that_dies_before_it_begins_a_check_loses_nothing)
{
	char handed_in = 0;
	int publisher, checker, sock = give_check(&publisher, &checker);
	struct job *job = server->work.jobs.first;

	close(sock);
	sock = standby_with(-1);
	TURN_UNTIL(comes(sock) && strcmp(message.method, "job") == 0);
	cr_expect_eq(job->given_back, 1);
	cr_assert_eq(packet.fd_count, 1);
	cr_expect_eq(recv(packet.fds[0], &handed_in, 1, MSG_DONTWAIT), 1);
	cr_expect_eq(handed_in, 'x');
	close(sock);
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED, "two have died");
	close(checker);
	close(publisher);
	leave();
}

/* Then nobody else could check what it took. */
Test(loader_unbegun, that_dies_when_it_has_begun_a_check_fails_it)
{
	int publisher, checker, sock = give_check(&publisher, &checker);
	struct job *job = server->work.jobs.first;

	say_progress(sock);
	forget();
	cr_expect_eq(job->publisher_sock, -1, "the checker's death is the end of the publisher's connection");
	close(sock);
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->given_back, 0);
	close(checker);
	close(publisher);
	leave();
}
