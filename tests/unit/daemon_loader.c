/* The life and death of loaders behind a socket. */
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(loader, .init = open_service, .fini = close_service, .timeout = 120);

static uint64_t used(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST)->used;
}

/* What the loader of a running job may hold. */
static void keep(const struct job *job, uint64_t bytes)
{
	struct budget_charge charge = {0};
	struct error error;

	cr_assert_eq(budget_charge(device_find(&server->ledger.devices, DEVICE_HOST), bytes, &charge, &error),
		     0);
	loader_keep(loader_of(server->work.loaders, job), shared_charge_new(&charge));
}

/* The last start came to nothing, for this reason. */
static void expect_no_start(const char *says)
{
	TURN_UNTIL(server->work.loaders->failures > 0);
	cr_expect_eq(loader_pool_count(server->work.loaders), 0);
	cr_expect(strstr(server->work.loaders->failure.message, says), "\"%s\" does not say \"%s\"",
		  server->work.loaders->failure.message, says);
}

/* ---- beginning ---- */

Test(loader, is_connected_to_and_stands_by)
{
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	cr_expect_eq(loader_pool_count(server->work.loaders), 1);
	sock = standby_with(-1);
	loader_pool_report(server->work.loaders);
	cr_assert(comes(sock));
	cr_expect_str_eq(message.method, "report");
	forget();
	server = server_free(server);
	cr_expect_eq(packet_receive(sock, true, &packet), 0, "the connection did not end with gpuwmd");
	close(sock);
	close(listener);
	listener = -1;
	cr_assert_eq(fd_count(), fds_before);
}

Test(loader, that_nobody_starts_is_waited_for_and_told_why)
{
	struct job *job;
	int sock;

	pool_start();
	expect_no_start("No such file or directory");
	job = new_job();
	cr_expect_eq(strncmp(job->phase, "waiting for a loader: no loader answers at /tmp/", 48), 0, "%s",
		     job->phase);
	listen_for(SOCK_SEQPACKET, 4);
	sock = standby_with(-1);
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(server->work.loaders->failures, 0);
	say_progress(sock);
	close(sock);
	TURN_UNTIL(job_ended(job));
	leave();
}

Test(loader, that_never_comes_fails_the_jobs)
{
	struct job *job;

	listen_for(SOCK_SEQPACKET, 4);
	close(listener);
	listener = -1;
	pool_start();
	expect_no_start("Connection refused");
	job = new_job();
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(server->work.loaders->failures, LOADER_RETRIES_MAX);
	expect_job_failed(job, "no loader could be started, 3 times in a row: no loader answers at /tmp/",
			  "systemctl start gpuwm-loader.socket");
	leave();
}

Test(loader, behind_a_socket_of_another_type)
{
	struct job *job;

	listen_for(SOCK_STREAM, 4);
	pool_start();
	expect_no_start("Protocol wrong type");
	job = new_job();
	TURN_UNTIL(job_ended(job));
	expect_job_failed(job, "Protocol wrong type", "ListenSequentialPacket=");
	leave();
}

Test(loader, behind_a_queue_that_is_full)
{
	int fillers[16], count = 0;

	listen_for(SOCK_SEQPACKET, 0);
	for (bool full = false; !full; count++) {
		struct sockaddr_un address = address_of(config.loader_socket);

		cr_assert_lt(count, 16);
		fillers[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		full = connect(fillers[count], (struct sockaddr *)&address, sizeof(address)) < 0;
	}
	pool_start();
	expect_no_start("Resource temporarily unavailable");
	while (count > 0)
		close(fillers[--count]);
	leave();
}

Test(loader, without_descriptors)
{
	struct rlimit old, none = {0, 0};

	listen_for(SOCK_SEQPACKET, 4);
	getrlimit(RLIMIT_NOFILE, &old);
	none.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_NOFILE, &none);
	pool_start();
	setrlimit(RLIMIT_NOFILE, &old);
	expect_no_start("Too many open files");
	leave();
}

Test(loader, without_memory)
{
	struct loader_pool *pool = server->work.loaders;
	int before, sock;

	listen_for(SOCK_SEQPACKET, 16);
	pool->started = true;
	before = fd_count();
	for (unsigned n = 1; fail_alloc_arm(n), loader_pool_turn(pool), fail_alloc_disarm(); n++) {
		int turned_away;

		cr_assert_eq(pool->failures, n);
		cr_assert_eq(loader_pool_count(pool), 0);
		turn();
		while ((turned_away = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
			close(turned_away);
		cr_assert_eq(fd_count(), before);
		pool->retry_at_ms = 0;
		pool->asked_ms = 0;
	}
	cr_expect_gt(pool->failures, 1);
	sock = standby_with(-1);
	close(sock);
	leave();
}

Test(loader, that_ends_before_its_hello)
{
	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	close(accept_one());
	expect_no_start("gpuwm-loader ended before it said hello");
	leave();
}

Test(loader, that_says_nothing_is_given_up)
{
	int sock;

	config.loader_start_ms = 100;
	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = accept_one();
	expect_no_start("gpuwm-loader did not say hello within 100 ms");
	cr_expect(is_ended(sock));
	close(sock);
	leave();
}

Test(loader, that_hands_in_what_is_no_pidfd_is_refused)
{
	int sock, fd = memfd_create("no pidfd", MFD_CLOEXEC);
	struct message_writer w;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = accept_one();
	cr_expect_eq(hello_with(sock, fd), -EPERM);
	cr_expect(strstr(message.error.message, "pidfd"), "%s", message.error.message);
	begin_hello(&w);
	message_put_u64(&w, "pidfd", 0);
	send_request(sock, &w);
	cr_expect_eq(answered(sock), -EBADMSG);
	cr_expect_not(loader_pool_standby(server->work.loaders));
	close(sock);
	close(fd);
	expect_no_start("before it said hello");
	leave();
}

/* ---- ending ---- */

Test(loader, standing_by_is_replaced)
{
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(-1);
	close(sock);
	sock = standby_with(-1);
	cr_expect_eq(loader_pool_count(server->work.loaders), 1);
	cr_expect_eq(server->work.loaders->failures, 0);
	close(sock);
	leave();
}

Test(loader, dies_with_its_job_and_the_journal_says_why)
{
	struct job *job;
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(-1);
	job = new_job();
	keep(job, 4096);
	say_progress(sock);
	close(sock);
	TURN_UNTIL(job_ended(job));
	expect_job_failed(job, "gpuwm-loader died", "journalctl -u 'gpuwm-loader@*'");
	cr_expect_eq(used(), 0, "without a pidfd the connection's end is all that there is");
	leave();
}

Test(loader, holds_what_it_was_granted_until_its_process_is_gone)
{
	struct job *job;
	int sock, pidfd = child_pidfd();

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(pidfd);
	close(pidfd);
	job = new_job();
	keep(job, 4096);
	say_progress(sock);
	close(sock);
	TURN_UNTIL(job_ended(job));
	expect_job_failed(job, "gpuwm-loader closed its connection in the middle of its job", "journalctl");
	cr_expect_eq(used(), 4096);
	child_dies();
	TURN_UNTIL(used() == 0);
	leave();
}

/* Its process is gone, and a child of it has the connection. */
Test(loader, dies_also_when_its_connection_lives_on)
{
	struct job *job;
	int sock, pidfd = child_pidfd();

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(pidfd);
	close(pidfd);
	job = new_job();
	say_progress(sock);
	child_dies();
	TURN_UNTIL(job_ended(job));
	expect_job_failed(job, "gpuwm-loader died", "journalctl");
	TURN_UNTIL(comes(sock) || is_ended(sock));
	close(sock);
	leave();
}

Test(loader, that_does_not_heed_a_cancel_loses_its_connection_and_is_forgotten)
{
	struct job *job;
	struct error reason;
	int sock, pidfd = child_pidfd();

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(pidfd);
	close(pidfd);
	job = new_job();
	keep(job, 4096);
	error_set(&reason, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &reason);
	cr_assert_eq(job->state, JOB_RUNNING);
	cr_assert_eq(loader_pool_count(server->work.loaders), 1);
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_CANCELLED);
	forget();
	while (packet_receive(sock, true, &packet) > 0)
		packet_drop(&packet);
	cr_expect(is_ended(sock));
	close(sock);
	/* There is room for another one again, and the bytes stay charged. */
	sock = standby_with(-1);
	cr_expect_eq(used(), 4096);
	child_dies();
	TURN_UNTIL(used() == 0);
	close(sock);
	leave();
}

Test(loader, that_is_done_leaves_without_a_word)
{
	struct job *job;
	int sock, next, pidfd = child_pidfd();

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(pidfd);
	close(pidfd);
	job = new_job();
	cr_assert(comes(sock));
	cr_expect_str_eq(message.method, "job");
	send_plain(sock, 2, "loader_done");
	cr_assert_eq(answered(sock), 0);
	cr_expect_eq(job->state, JOB_DONE);
	close(sock);
	child_dies();
	next = standby_with(-1);
	cr_expect_eq(loader_pool_count(server->work.loaders), 1);
	cr_expect_eq(server->work.loaders->failures, 0);
	close(next);
	leave();
}

Test(loader, jobs_say_that_all_are_busy)
{
	struct job *first, *second;
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	sock = standby_with(-1);
	first = new_job();
	cr_assert_eq(first->state, JOB_RUNNING);
	second = new_job();
	cr_expect_str_eq(second->phase, "waiting for a loader: all 1 are busy");
	say_progress(sock);
	close(sock);
	sock = standby_with(-1);
	cr_expect_eq(second->state, JOB_RUNNING);
	say_progress(sock);
	close(sock);
	TURN_UNTIL(job_ended(second));
	leave();
}
