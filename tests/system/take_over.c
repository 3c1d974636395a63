/* gpuwm-keeper takes over from another keeper, which the test plays: it goes on with what it got, or says why not. */
#include "other_keeper.h"

#include "tests/support/any/threads.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(take_over);

#define TAKEN_OVER "2 a:1:1 b:1:2"

static void start(struct keeper *k, struct other *o)
{
	const char *flags[] = {"--restart-delay", "0", "--take-over", o->path, NULL};

	keeper_spawn(k, flags, NULL);
}

/* A new keeper has asked. */
static void start_asking(struct keeper *k, struct other *o)
{
	keeper_prepare(k);
	other_prepare(o, k);
	other_listen(o);
	start(k, o);
	other_accept(o);
}

/* A new keeper has everything, and its program is started. */
static void start_adopting(struct keeper *k, struct other *o)
{
	start_asking(k, o);
	other_send_store(o);
	service_wait(k);
	ASK_IS(k, TAKEN_OVER, "list");
	ASK_IS(k, "1", "env GPUWM_STORE_ADOPT");
}

static void serves_alone(struct keeper *k)
{
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	service_crash(k);
	ASK_IS(k, TAKEN_OVER, "list");
	ASK_IS(k, "(none)", "env GPUWM_STORE_ADOPT");
}

static void refuses(struct keeper *k, struct other *o, const char *why)
{
	cr_assert_eq(keeper_join(k), 1);
	cr_assert_eq(keeper_log_count(k, why), 1);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	cr_assert_eq(access(o->path, F_OK), 0, "the socket is the other keeper's");
	close(o->listener);
}

/* ---- the ready file --------------------------------------------------- */

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

KEEPER_TEST(take_over, the_ready_file_is_there_while_the_program_is_ready)
{
	char path[128];

	keeper_prepare(k);
	snprintf(path, sizeof path, "%s/ready", k->folder.dir);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); /* of a keeper that was killed */
	keeper_spawn(k, (const char *const[]){"--restart-delay", "0", "--ready-file", path, NULL}, NULL);
	service_wait(k);
	for (int i = 0; i < 2; i++) {
		cr_assert(!is_there(path));
		ASK_IS(k, "notify 1", "notify READY=1");
		ASK_IS(k, "barrier 1", "barrier");
		cr_assert(is_there(path));
		service_crash(k);
	}
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	/* It goes before the program is gone. */
	ASK_IS(k, "ignore 0", "ignore 15");
	keeper_signal(k, SIGUSR1);
	cr_assert(EVENTUALLY(KEEPER_MS, !is_there(path)));
	service_runs(k);
	service_tell(k, "exit 0");
	service_wait(k);
}

KEEPER_TEST(take_over, a_ready_file_that_can_not_be_made_is_named)
{
	keeper_start(k, "--ready-file", "/nonexistent/ready", NULL);
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(keeper_log_count(k, "--ready-file /nonexistent/ready can't be made: No such file"), 1);
}

/* ---- nobody is there -------------------------------------------------- */

KEEPER_TEST(take_over, without_another_keeper_it_begins_empty)
{
	struct other o;

	keeper_prepare(k);
	other_prepare(&o, k);
	start(k, &o);
	service_wait(k);
	ASK_IS(k, "0", "list");
	ASK_IS(k, "(none)", "env GPUWM_STORE_ADOPT");
	cr_assert_eq(keeper_log_count(k, "gpuwm-keeper begins with an empty store"), 1);
	keeper_stop(k);
	cr_assert_neq(access(o.path, F_OK), 0, "the socket is left");
}

KEEPER_TEST(take_over, a_stale_socket_is_replaced)
{
	struct other o;

	keeper_prepare(k);
	other_prepare(&o, k);
	other_listen(&o);
	close(o.listener);
	start(k, &o);
	service_wait(k);
	ASK_IS(k, "notify 1", "notify READY=1");
	other_connect(&o);
	other_close(&o);
}

KEEPER_TEST(take_over, a_file_that_is_no_socket_is_left_alone)
{
	struct other o;
	int fd;

	keeper_prepare(k);
	other_prepare(&o, k);
	fd = open(o.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	start(k, &o);
	refuses(k, &o, "the keeper can't listen there: File exists");
	close(fd);
}

KEEPER_TEST(take_over, a_folder_that_is_not_there_is_named)
{
	struct other o;

	keeper_prepare(k);
	other_prepare(&o, k);
	strcpy(o.path, "/nonexistent/take-over");
	start(k, &o);
	cr_assert_eq(keeper_join(k), 1);
	cr_assert_eq(keeper_log_count(k, "the lock can't be opened; the folder must exist and be writable"), 1);
}

/* Starts a keeper that waits, since somebody else holds the lock. Returns the descriptor that holds it. */
static int start_behind_a_lock(struct keeper *k, struct other *o)
{
	char lock[128];
	int fd;

	keeper_prepare(k);
	other_prepare(o, k);
	snprintf(lock, sizeof lock, "%s.lock", o->path);
	fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(flock(fd, LOCK_EX) == 0);
	start(k, o);
	cr_assert(EVENTUALLY(KEEPER_MS, access(k->log, F_OK) == 0 &&
						keeper_log_count(k, "gpuwm-keeper waits for its end") == 1));
	return fd;
}

/* A keeper that is being ended by SIGKILL keeps its lock until the kernel has closed its memory. */
KEEPER_TEST(take_over, a_keeper_that_is_ending_is_waited_for)
{
	struct other o;
	int fd = start_behind_a_lock(k, &o);

	close(fd);
	service_wait(k);
	ASK_IS(k, "0", "list");
}

KEEPER_TEST(take_over, it_can_be_told_to_stop_while_it_waits)
{
	struct other o;
	int fd = start_behind_a_lock(k, &o);

	keeper_signal(k, SIGTERM);
	cr_assert_eq(keeper_join(k), 0);
	close(fd);
	start_asking(k, &o);
	keeper_signal(k, SIGTERM);
	other_expect(&o, "BACK ");
	other_expect_end(&o);
	cr_assert_eq(keeper_join(k), 0);
	close(o.listener);
}

/* ---- the other one hands nothing over, or dies ------------------------ */

KEEPER_TEST(take_over, a_refusal_ends_the_keeper_with_its_reason)
{
	struct other o;

	start_asking(k, &o);
	cr_assert_str_eq(o.text, "TAKE-OVER 1 2048 0");
	other_say(&o, "NO 9 descriptors are stored");
	refuses(k, &o, "the keeper there hands nothing over: 9 descriptors are stored");
}

KEEPER_TEST(take_over, a_keeper_that_dies_with_nothing_sent_leaves_an_empty_store)
{
	struct other o;

	start_asking(k, &o);
	close(o.listener);
	other_close(&o);
	service_wait(k);
	ASK_IS(k, "0", "list");
}

KEEPER_TEST(take_over, a_keeper_that_dies_in_the_middle_leaves_what_it_sent)
{
	struct other o;
	const int first[] = {other_memfd(1), other_memfd(2)};
	int socket_and_lock[2];

	start_asking(k, &o);
	socket_and_lock[0] = o.listener;
	socket_and_lock[1] = other_memfd(0);
	other_send(&o, "BEGIN ", socket_and_lock, 2);
	other_send(&o, "STORE\na\nb", first, 2);
	other_close(&o);
	service_wait(k);
	ASK_IS(k, TAKEN_OVER, "list");
	ASK_IS(k, "(none)", "env GPUWM_STORE_ADOPT");
	cr_assert_eq(keeper_log_count(k, "died while it handed over: 2 descriptors arrived"), 1);
	serves_alone(k);
	close(o.listener);
	other_connect(&o); /* the socket is the new keeper's */
	other_close(&o);
}

KEEPER_TEST(take_over, a_keeper_that_dies_while_the_program_adopts_leaves_everything)
{
	struct other o;

	start_adopting(k, &o);
	other_close(&o);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "the store belongs to this keeper") == 1));
	serves_alone(k);
	close(o.listener);
}

static void sends_what_is_wrong(struct keeper *k, const char *text, size_t fds)
{
	struct other o;
	const int some[] = {other_memfd(1), other_memfd(2)};

	start_asking(k, &o);
	other_send(&o, text, some, fds);
	other_expect(&o, "BACK Bad message");
	other_expect_end(&o);
	refuses(k, &o, "the descriptors of the other keeper can't be taken over: Bad message");
	close(some[0]);
	close(some[1]);
}

KEEPER_TEST(take_over, descriptors_without_right_names_are_refused)
{
	sends_what_is_wrong(k, "STORE\na", 2);
	sends_what_is_wrong(k, "STORE\na:b\nc", 2);
}

KEEPER_TEST(take_over, what_is_no_right_packet_is_refused)
{
	sends_what_is_wrong(k, "BEGIN ", 1);
	sends_what_is_wrong(k, "END 1", 0);
	sends_what_is_wrong(k, "HELLO ", 0);
}

/* ---- whose the store is ----------------------------------------------- */

KEEPER_TEST(take_over, the_store_changes_hands_when_the_program_has_adopted_it)
{
	char answer[9];
	struct other o;
	size_t fds;

	start_adopting(k, &o);
	cr_assert_eq(poll(&(struct pollfd){.fd = o.sock, .events = POLLIN}, 1, 0), 0, "too early");
	ASK_IS(k, "notify 1", "notify X_GPUWM_ADOPTED=1");
	other_expect(&o, "TAKEN ");
	fds = fds_of(k->service_pid);
	service_tell(k, "barrier");
	/* The program has sent its pipe's other end, and the keeper sleeps on, although there is something to read. */
	cr_assert(EVENTUALLY(KEEPER_MS,
			     fds_of(k->service_pid) == fds + 1 && thread_sleeps_in(k->pid, NULL, CALL_POLL)),
		  "the program may serve, and the other keeper has not let go");
	other_say(&o, "YOURS ");
	other_expect_end(&o);
	cr_assert_eq(recv(k->service, answer, sizeof answer, 0), (ssize_t)sizeof answer);
	cr_assert_arr_eq(answer, "barrier 1", sizeof answer);
	serves_alone(k);
	close(o.listener);
}

/* A program that knows nothing of it. */
KEEPER_TEST(take_over, a_program_that_is_ready_has_adopted)
{
	struct other o;

	start_adopting(k, &o);
	ASK_IS(k, "notify 1", "notify READY=1");
	other_expect(&o, "TAKEN ");
	/* The old one wanted to end it, and saw then that it was too late. */
	other_say(&o, "NO it took too long");
	other_say(&o, "YOURS ");
	other_expect_end(&o);
	serves_alone(k);
	close(o.listener);
}

KEEPER_TEST(take_over, a_keeper_that_dies_before_its_answer_leaves_everything)
{
	struct other o;

	start_adopting(k, &o);
	ASK_IS(k, "notify 1", "notify X_GPUWM_ADOPTED=1");
	other_expect(&o, "TAKEN ");
	other_close(&o);
	serves_alone(k);
	close(o.listener);
}

KEEPER_TEST(take_over, told_to_stop_before_the_answer_it_has_taken_nothing)
{
	struct other o;

	start_adopting(k, &o);
	ASK_IS(k, "notify 1", "notify X_GPUWM_ADOPTED=1");
	other_expect(&o, "TAKEN ");
	keeper_signal(k, SIGTERM);
	other_expect_end(&o);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	cr_assert_eq(access(o.path, F_OK), 0);
	close(o.listener);
}

KEEPER_TEST(take_over, a_program_that_ends_before_gives_back)
{
	struct other o;

	start_adopting(k, &o);
	service_tell(k, "exit 3");
	other_expect(&o, "BACK its program ended before it had adopted the store");
	other_say(&o, "MINE it was given back");
	refuses(k, &o, "the other keeper goes on with its store: it was given back");
}

/* Nobody else has it then: as long as the new keeper lives, nothing is lost. */
KEEPER_TEST(take_over, what_nobody_takes_back_is_kept)
{
	struct other o;

	start_adopting(k, &o);
	service_tell(k, "exit 3");
	other_expect(&o, "BACK ");
	other_close(&o);
	service_wait(k);
	ASK_IS(k, TAKEN_OVER, "list");
	serves_alone(k);
	close(o.listener);
	/* The same where it can't even be offered. */
	start_adopting(k, &o);
	keeper_signal(k, SIGSTOP);
	service_tell(k, "exit 3");
	other_close(&o);
	keeper_signal(k, SIGCONT);
	service_wait(k);
	ASK_IS(k, TAKEN_OVER, "list");
	close(o.listener);
}

KEEPER_TEST(take_over, told_to_stop_it_gives_back)
{
	struct other o;

	start_adopting(k, &o);
	keeper_signal(k, SIGTERM);
	other_expect(&o, "BACK ");
	other_say(&o, "MINE it was given back");
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(access(o.path, F_OK), 0);
	close(o.listener);
}

/* gpuwmd hears SIGTERM when it has adopted everything. If the keeper took the store then, it would let it go at once. */
KEEPER_TEST(take_over, told_to_stop_it_takes_nothing_any_more)
{
	struct other o;

	start_adopting(k, &o);
	ASK_IS(k, "ignore 0", "ignore 15");
	keeper_signal(k, SIGTERM);
	service_tell(k, "notify X_GPUWM_ADOPTED=1");
	other_expect(&o, "BACK this keeper was told to stop");
	other_expect_end(&o);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	cr_assert_eq(access(o.path, F_OK), 0);
	close(o.listener);
}

static void withdraw(const struct other *o)
{
	other_say(o, "NO it took too long");
	cr_assert(shutdown(o->sock, SHUT_RD) == 0);
}

KEEPER_TEST(take_over, the_old_keeper_may_take_back_before_the_last_word)
{
	struct other o;

	start_adopting(k, &o);
	withdraw(&o);
	refuses(k, &o, "the other keeper goes on with its store: it took too long");
	other_close(&o);
	/* And while the new one says it: the kernel says which was first. */
	start_adopting(k, &o);
	keeper_signal(k, SIGSTOP);
	service_tell(k, "notify X_GPUWM_ADOPTED=1");
	withdraw(&o);
	keeper_signal(k, SIGCONT);
	refuses(k, &o, "the other keeper goes on with its store: it took too long");
	other_close(&o);
}
