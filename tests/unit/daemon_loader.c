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

static void expect_failed(const struct job *job, const char *says, const char *remedy)
{
	cr_assert_eq(job->state, JOB_FAILED, "%s", job_state_name(job->state));
	cr_expect_eq(job->error->code, -EIO);
	cr_expect(strstr(job->error->message, says), "\"%s\" does not say \"%s\"", job->error->message, says);
	cr_expect(strstr(job->error->detail, remedy), "\"%s\" does not say \"%s\"", job->error->detail, remedy);
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
	expect_failed(job, "no loader could be started, 3 times in a row: no loader answers at /tmp/",
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
	expect_failed(job, "Protocol wrong type", "ListenSequentialPacket=");
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
	expect_failed(job, "gpuwm-loader died", "journalctl -u 'gpuwm-loader@*'");
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
	expect_failed(job, "gpuwm-loader closed its connection in the middle of its job", "journalctl");
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
	expect_failed(job, "gpuwm-loader died", "journalctl");
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

/* ---- ending before it has begun ---- */

/* It was dead when the load came, and gpuwmd did not know that yet. */
Test(loader, that_dies_before_it_begins_loses_no_load)
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
Test(loader, that_closes_its_connection_before_it_begins_loses_no_load)
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
Test(loader, that_dies_before_it_begins_as_the_one_before_fails_its_load)
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
	expect_failed(job, "gpuwm-loader died", "journalctl");
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
	expect_failed(job, "gpuwm-loader died", "journalctl");
	leave();
}

static void for_memory(int sock)
{
	cr_assert_eq(ASK(sock, "publish_begin", TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST),
			 NUMBER("bytes", 4096)),
		     0, "%s", message.error.message);
}

Test(loader, that_has_asked_for_memory_has_begun)
{
	dies_after(for_memory);
}

static void for_what_it_shares(int sock)
{
	cr_assert_lt(ASK(sock, "loader_resident", NUMBER("rank", 0), TEXT("device", DEVICE_HOST)), 0);
}

Test(loader, that_has_asked_for_what_it_shares_has_begun)
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
Test(loader, that_dies_before_it_begins_a_check_loses_nothing)
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
Test(loader, that_dies_when_it_has_begun_a_check_fails_it)
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
