/* gpuwm-keeper hands over to another keeper, which the test plays: whatever becomes of that one, the store is in one place. */
#include "other_keeper.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(hand_over);

#define STORED "3 gpuwm-state:4096:7 a:4096:1 a:4096:2"

static void start(struct keeper *k, struct other *o, const char *flag, const char *value)
{
	const char *flags[] = {"--restart-delay", "0", "--take-over", o->path, flag, value, NULL};

	keeper_prepare(k);
	other_prepare(o, k);
	keeper_spawn(k, flags, NULL);
	service_wait(k);
	ASK_IS(k, "store 1", "store gpuwm-state 1 4096 7 memfd");
	ASK_IS(k, "store 1", "store a 2 4096 1 memfd");
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
}

/* The service is started again with everything. */
static void goes_on(struct keeper *k)
{
	service_wait(k);
	ASK_IS(k, STORED, "list");
	ASK_IS(k, "(none)", "env GPUWM_STORE_ADOPT");
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
}

/* Asks, and receives everything. */
static void receive_all(struct other *o)
{
	unsigned char byte;

	other_connect(o);
	other_say(o, "TAKE-OVER 1 2048 0");
	other_expect(o, "BEGIN ");
	cr_assert_eq(o->packet.fd_count, 2);
	other_expect(o, "STORE\ngpuwm-state\na\na");
	cr_assert_eq(o->packet.fd_count, 3);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(pread(o->packet.fds[i], &byte, 1, 0), 1);
		cr_assert_eq(byte, i == 0 ? 7 : i);
	}
	/* What the new program writes into its state is not the old one's. */
	cr_assert_eq(pwrite(o->packet.fds[0], "x", 1, 0), 1);
	other_expect(o, "END 3");
}

KEEPER_TEST(hand_over, a_keeper_that_closes_or_says_nothing_changes_nothing)
{
	struct other o;

	start(k, &o, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		other_connect(&o);
		other_close(&o);
		service_runs(k);
	}
	other_connect(&o);
	other_expect(&o, "NO the other keeper connected and did not ask");
	other_expect_end(&o);
	service_runs(k);
}

static void refused(struct keeper *k, struct other *o, const char *question, const char *answer)
{
	other_connect(o);
	other_say(o, question);
	other_expect(o, answer);
	other_expect_end(o);
	service_runs(k);
}

KEEPER_TEST(hand_over, a_question_that_is_refused_does_not_disturb_the_program)
{
	struct other o;

	start(k, &o, "--generation", "7");
	refused(k, &o, "TAKE-OVER 2 2048 7",
		"NO this keeper's protocol is 1, the other keeper said \"TAKE-OVER 2 ");
	refused(k, &o, "what", "NO this keeper's protocol is 1");
	refused(k, &o, "TAKE-OVER 1 2 7", "NO 3 descriptors are stored, --store-max of the other keeper is 2");
	refused(k, &o, "TAKE-OVER 1 3 6", "NO the other keeper's --generation is 6, this keeper's is 7");
	cr_assert_eq(keeper_log_count(k, "nothing is handed over"), 4);
}

KEEPER_TEST(hand_over, a_keeper_that_dies_before_it_takes_leaves_everything)
{
	struct other o;

	start(k, &o, NULL, NULL);
	/* while the program ends, and when it has ended */
	other_connect(&o);
	other_say(&o, "TAKE-OVER 1 2048 0");
	other_close(&o);
	goes_on(k);
	/* with everything received */
	for (int i = 0; i < 3; i++) {
		receive_all(&o);
		other_close(&o);
		goes_on(k);
	}
	cr_assert_geq(keeper_log_count(k, "has ended before it took over"), 3);
}

KEEPER_TEST(hand_over, a_keeper_whose_program_can_not_go_on_gives_back)
{
	struct other o;

	start(k, &o, NULL, NULL);
	receive_all(&o);
	other_say(&o, "BACK the state is too new");
	other_expect(&o, "MINE ");
	other_expect_end(&o);
	goes_on(k);
	cr_assert_eq(keeper_log_count(k, "gives everything back: the state is too new"), 1);
	/* What it may not say ends the hand-over too. */
	receive_all(&o);
	other_say(&o, "hello");
	other_expect(&o, "NO the other keeper said what it may not say now");
	other_expect_end(&o);
	goes_on(k);
}

KEEPER_TEST(hand_over, after_the_last_word_the_old_keeper_has_nothing)
{
	struct other o;

	start(k, &o, NULL, NULL);
	receive_all(&o);
	other_say(&o, "TAKEN ");
	other_expect(&o, "YOURS ");
	other_expect_end(&o);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "3 stored descriptors belong to the other keeper now"), 1);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	cr_assert_eq(access(o.path, F_OK), 0, "the socket is the other keeper's");
}

/* It waits for the answer before it serves. */
KEEPER_TEST(hand_over, a_keeper_that_takes_and_dies_has_served_nobody)
{
	struct other o;

	start(k, &o, NULL, NULL);
	receive_all(&o);
	keeper_signal(k, SIGSTOP);
	other_say(&o, "TAKEN ");
	other_close(&o);
	keeper_signal(k, SIGCONT);
	goes_on(k);
	cr_assert_eq(keeper_log_count(k, "the other keeper has taken the store and is gone"), 1);
}

/* A pod is deleted while its successor takes over. */
KEEPER_TEST(hand_over, a_keeper_that_is_told_to_stop_hands_over_first)
{
	struct other o;

	start(k, &o, NULL, NULL);
	ASK_IS(k, "on-term 1", "on-term STATUS=hears");
	keeper_signal(k, SIGTERM);
	other_connect(&o);
	other_say(&o, "TAKE-OVER 1 2048 0");
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "another keeper takes over") == 1));
	service_tell(k, "exit 0");
	other_expect(&o, "BEGIN ");
	other_expect(&o, "STORE\n");
	other_expect(&o, "END 3");
	keeper_signal(k, SIGTERM);
	keeper_signal(k, SIGUSR1);
	other_say(&o, "TAKEN ");
	other_expect(&o, "YOURS ");
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	other_close(&o);
}

KEEPER_TEST(hand_over, told_to_stop_while_the_other_one_adopts_it_waits_for_that)
{
	struct other o;

	start(k, &o, NULL, NULL);
	receive_all(&o);
	keeper_signal(k, SIGTERM);
	other_say(&o, "TAKEN ");
	other_expect(&o, "YOURS ");
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	other_close(&o);
	/* Without another one it ends as it was told. */
	start(k, &o, NULL, NULL);
	receive_all(&o);
	keeper_signal(k, SIGTERM);
	other_close(&o);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "3 stored descriptors are let go"), 1);
}

KEEPER_TEST(hand_over, while_the_program_starts_the_other_keeper_waits)
{
	struct other o;

	start(k, &o, NULL, NULL);
	service_crash(k);
	other_connect(&o);
	other_say(&o, "TAKE-OVER 1 2048 0");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(keeper_log_count(k, "another keeper takes over"), 0);
	service_tell(k, "notify READY=1");
	other_expect(&o, "BEGIN ");
	other_close(&o);
	goes_on(k);
}

/* The test's child waits for the keeper, which is PID 1 of a namespace, and ends as it does. */
static void as_pid_1(void)
{
	int status = 0;
	pid_t pid;

	if (unshare(CLONE_NEWPID) < 0 || (pid = fork()) < 0)
		_exit(124);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 123);
}

KEEPER_TEST(hand_over, as_pid_1_it_stays_until_it_is_told_to_end)
{
	struct other o;
	pid_t keeper;

	NEEDS_ROOT();
	keeper_prepare(k);
	other_prepare(&o, k);
	k->before_exec = as_pid_1;
	keeper_spawn(k, (const char *const[]){"--take-over", o.path, NULL}, NULL);
	service_wait(k);
	cr_assert_eq(k->service_pid, 2);
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(children_of(k->pid, &keeper, 1), 1);
	other_connect(&o);
	other_say(&o, "TAKE-OVER 1 2048 0");
	other_expect(&o, "BEGIN ");
	other_expect(&o, "END 0");
	other_say(&o, "TAKEN ");
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "does nothing until it is told to end") == 1));
	cr_assert(kill(keeper, SIGUSR1) == 0 && kill(keeper, SIGHUP) == 0 && kill(keeper, SIGUSR2) == 0);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "is ignored") == 1));
	cr_assert(kill(keeper, SIGTERM) == 0);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "is started"), 1);
	other_close(&o);
}

static pid_t connect_as(uid_t user, const struct other *o)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct other mine = *o;
		char text[128];

		if (setresuid(user, user, user) < 0)
			_exit(9);
		mine.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (packet_connect(mine.sock, o->path) < 0)
			_exit(8);
		/* not just the end, which would look as if the keeper had died */
		_exit(recv(mine.sock, text, sizeof text, 0) > 3 && strncmp(text, "NO ", 3) == 0 ? 0 : 7);
	}
	return pid;
}

KEEPER_TEST(hand_over, other_users_are_refused)
{
	struct other o;
	struct stat status;
	int end;

	NEEDS_ROOT();
	start(k, &o, NULL, NULL);
	cr_assert(stat(o.path, &status) == 0 && (status.st_mode & 0777) == 0600);
	cr_assert_eq(waitpid(connect_as(61000, &o), &end, 0) > 0 && WEXITSTATUS(end), 1);
	cr_assert(chmod(o.path, 0666) == 0 && chmod(k->folder.dir, 0755) == 0);
	cr_assert(waitpid(connect_as(61000, &o), &end, 0) > 0);
	cr_assert_eq(WEXITSTATUS(end), 0, "%d", WEXITSTATUS(end));
	cr_assert_eq(keeper_log_count(k, "of user 61000 wants to take over and is refused"), 1);
	service_runs(k);
}
