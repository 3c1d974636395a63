/* Readers of a pool: tokens, taking, waiting and finishing, and processes that die in between. */
#include "tests/support/any/between.h"
#include "tests/support/any/child.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/pools.h"

#include <signal.h>

#define OWNER 0
#define READER 1
#define OTHER 2
#define BIT(slot) (UINT32_C(1) << (slot))

static struct shared_region shared;
static struct gpuwm_region *pool, *reader, *other;
static int fds;

static void begin(void)
{
	fds = fd_count();
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
	other = open_as(&shared, OTHER, false);
}

static void end(void)
{
	close_as(&shared, other);
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared);
	if (pools_on_host())
		cr_assert(eq(int, fd_count(), fds));
}

TestSuite(chunk, .timeout = 60);

static struct control_chunk *entry_of(const struct gpuwm_token *token)
{
	return &shared.control.chunks[token->chunk];
}

/* ---- tokens ------------------------------------------------------------------ */

static void is_refused(struct gpuwm_token token)
{
	struct gpuwm_chunk *chunk;

	FAILS(gpuwm_chunk_take(reader, &token, 0, &chunk), -EINVAL);
}

TestBetween(chunk, tokens_that_can_not_be_right_are_refused, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1000, BIT(READER), 0), wrong = token;

	wrong.region[15] ^= 1;
	is_refused(wrong);
	wrong = token;
	wrong.chunk = 8;
	is_refused(wrong);
	wrong = token;
	wrong.writer = REGION_USERS_MAX;
	is_refused(wrong);
	wrong = token;
	wrong.writer = OTHER;
	is_refused(wrong);
	wrong = token;
	wrong.generation = 0;
	is_refused(wrong);
	wrong = token;
	wrong.offset = 256;
	is_refused(wrong);
	wrong.offset = UINT64_MAX;
	is_refused(wrong);
	wrong = token;
	wrong.bytes = 0;
	is_refused(wrong);
	wrong.bytes = 1001;
	is_refused(wrong);
	wrong.bytes = UINT64_MAX;
	is_refused(wrong);
	FAILS(gpuwm_chunk_take(reader, NULL, 0, &(struct gpuwm_chunk *){NULL}), -EINVAL);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	all_is_free(pool);
}

TestBetween(chunk, tokens_that_are_out_of_date_are_refused, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 0), later = token;
	struct gpuwm_chunk *chunk;

	later.generation++;
	FAILS(gpuwm_chunk_take(reader, &later, -1, &chunk), -ESTALE);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	for (unsigned i = 0; i < 300 * 8; i++) {
		OK(gpuwm_chunk_discard(alloc(pool, 1)));
		if (i >= 8)
			FAILS(gpuwm_chunk_take(reader, &token, -1, &chunk), -ESTALE);
	}
	OK(gpuwm_token_finished(reader, &token, 0));
}

TestBetween(chunk, a_reader_counts_once, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, 0, 2);
	struct gpuwm_chunk *chunk = take(reader, &token), *none;

	FAILS(gpuwm_chunk_take(reader, &token, 0, &none), -EALREADY);
	OK(gpuwm_chunk_finish(chunk));
	FAILS(gpuwm_chunk_take(reader, &token, 0, &none), -EALREADY);
	FAILS(gpuwm_token_finished(pool, &token, 0), -ETIMEDOUT);
	OK(gpuwm_chunk_finish(take(other, &token)));
	OK(gpuwm_token_finished(pool, &token, 0));
}

TestBetween(chunk, readers_that_are_not_named_are_counted, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 0), open = offer(pool, 1, 0, 1);
	struct gpuwm_chunk *none;

	FAILS(gpuwm_chunk_take(other, &token, 0, &none), -ESTALE);
	OK(gpuwm_chunk_finish(take(other, &open)));
	FAILS(gpuwm_chunk_take(reader, &open, 0, &none), -ESTALE);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	all_is_free(pool);
}

TestBetween(chunk, the_owner_may_read_what_it_offers_to_itself, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(OWNER), 0);

	OK(gpuwm_chunk_finish(take(pool, &token)));
	all_is_free(pool);
}

TestBetween(chunk, is_given_up_once, begin(), end())
{
	struct gpuwm_chunk *chunk = alloc(pool, 1);
	struct gpuwm_token token;

	FAILS(gpuwm_chunk_check(chunk), -EINVAL);
	OK(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){BIT(READER), 0}, &token));
	chunk = take(reader, &token);
	FAILS(gpuwm_chunk_discard(chunk), -EINVAL);
	FAILS(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){BIT(READER), 0}, &token), -EINVAL);
	OK(gpuwm_chunk_finish(chunk));
	FAILS(gpuwm_chunk_finish(NULL), -EINVAL);
}

TestBetween(chunk, keeps_its_region_open, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 0);
	struct gpuwm_chunk *chunk = take(reader, &token), *filling = alloc(pool, 1);

	FAILS(gpuwm_region_close(reader), -EBUSY);
	SAYS("1 chunks");
	FAILS(gpuwm_region_close(pool), -EBUSY);
	OK(gpuwm_region_close(NULL));
	OK(gpuwm_chunk_finish(chunk));
	OK(gpuwm_chunk_discard(filling));
}

/* ---- bytes that are not there yet ---------------------------------------------- */

/* As a stream has them that has not got there. */
static struct gpuwm_token unwritten(void)
{
	struct gpuwm_token token = offer(pool, MIB(2), BIT(READER), 1);

	atomic_store(&entry_of(&token)->written, token.generation - 1);
	return token;
}

TestBetween(chunk, whose_bytes_are_not_there_is_not_taken, begin(), end())
{
	struct gpuwm_token token = unwritten();
	struct gpuwm_chunk *chunk;

	FAILS(gpuwm_chunk_take(reader, &token, 0, &chunk), -ETIMEDOUT);
	FAILS(gpuwm_chunk_take(other, &token, 2, &chunk), -ETIMEDOUT);
	atomic_store(&entry_of(&token)->written, token.generation);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	OK(gpuwm_chunk_finish(take(other, &token)));
	all_is_free(pool);
}

TestBetween(chunk, is_not_free_before_its_bytes_are_there, begin(), end())
{
	struct gpuwm_token token = unwritten();
	struct gpuwm_chunk *chunk;

	OK(gpuwm_token_withdraw(pool, &token));
	FAILS(gpuwm_chunk_alloc(pool, MIB(2), 0, &chunk), -EAGAIN);
	SAYS("a stream that still writes it");
	atomic_store(&entry_of(&token)->written, token.generation);
	all_is_free(pool);
}

struct wait {
	struct gpuwm_token token;
	_Atomic int result;
};

static void *take_and_finish(void *data)
{
	struct wait *wait = data;
	struct gpuwm_chunk *chunk;
	int r = gpuwm_chunk_take(reader, &wait->token, -1, &chunk);

	if (r == 0)
		r = gpuwm_chunk_finish(chunk);
	if (r == -EOWNERDEAD && !strstr(gpuwm_error()->message, "process 1000 (user-a)"))
		r = -EIO;
	atomic_store(&wait->result, r);
	return NULL;
}

static pthread_t wait_in_thread(struct wait *wait, void *(*function)(void *))
{
	pthread_t thread;

	atomic_store(&wait->result, 1);
	cr_assert(eq(int, pthread_create(&thread, NULL, function, wait), 0));
	return thread;
}

static bool somebody_sleeps(void)
{
	return atomic_load(&shared.control.head->freed.sleepers) > 0;
}

TestBetween(chunk, a_reader_waits_for_the_bytes, begin(), end())
{
	struct wait wait = {.token = unwritten()};
	pthread_t thread = wait_in_thread(&wait, take_and_finish);

	UNTIL(somebody_sleeps());
	atomic_store(&entry_of(&wait.token)->written, wait.token.generation);
	control_ring(&shared.control.head->freed);
	pthread_join(thread, NULL);
	cr_assert(eq(int, wait.result, 0));
}

TestBetween(chunk, a_reader_learns_that_the_writer_died, begin(), end())
{
	struct wait wait = {.token = unwritten()};
	pthread_t thread = wait_in_thread(&wait, take_and_finish);
	struct gpuwm_chunk *chunk;

	UNTIL(somebody_sleeps());
	has_exited(&shared, OWNER);
	pthread_join(thread, NULL);
	cr_assert(eq(int, wait.result, -EOWNERDEAD));
	FAILS(gpuwm_chunk_take(other, &wait.token, 0, &chunk), -EOWNERDEAD);
	/* Both have finished with it. */
	cr_assert(chunk_word_is_free(atomic_load(&entry_of(&wait.token)->word)));
}

/* ---- waiting for readers --------------------------------------------------------- */

static void *await_readers(void *data)
{
	struct wait *wait = data;

	atomic_store(&wait->result, gpuwm_token_finished(pool, &wait->token, -1));
	return NULL;
}

TestBetween(chunk, the_owner_waits_until_the_last_reader_has_finished, begin(), end())
{
	struct wait wait = {.token = offer(pool, 1, BIT(READER) | BIT(OTHER), 0)};
	pthread_t thread = wait_in_thread(&wait, await_readers);

	UNTIL(somebody_sleeps());
	OK(gpuwm_chunk_finish(take(reader, &wait.token)));
	UNTIL(somebody_sleeps());
	cr_assert(eq(int, wait.result, 1));
	has_exited(&shared, OTHER);
	pthread_join(thread, NULL);
	cr_assert(eq(int, wait.result, 0));
}

TestBetween(chunk, nobody_waits_on_in_a_region_that_has_ended, begin(), end())
{
	struct wait wait = {.token = offer(pool, 1, BIT(READER), 0)};
	pthread_t thread = wait_in_thread(&wait, await_readers);

	UNTIL(somebody_sleeps());
	control_ended(&shared.control, CONTROL_REMOVED, 0);
	pthread_join(thread, NULL);
	cr_assert(eq(int, wait.result, -ESHUTDOWN));
}

static void *alloc_and_discard(void *data)
{
	struct wait *wait = data;
	struct gpuwm_chunk *chunk;
	int r = gpuwm_chunk_alloc(pool, MIB(2), -1, &chunk);

	if (r == 0)
		r = gpuwm_chunk_discard(chunk);
	atomic_store(&wait->result, r);
	return NULL;
}

TestBetween(chunk, a_caller_that_waits_for_room_gets_it_when_the_reader_finishes, begin(), end())
{
	struct wait wait = {.token = offer(pool, MIB(2), BIT(READER), 0)};
	pthread_t thread = wait_in_thread(&wait, alloc_and_discard);

	UNTIL(somebody_sleeps());
	OK(gpuwm_chunk_finish(take(reader, &wait.token)));
	pthread_join(thread, NULL);
	cr_assert(eq(int, wait.result, 0));
	all_is_free(pool);
}

TestBetween(chunk, a_caller_that_waits_for_room_gets_it_when_the_reader_dies, begin(), end())
{
	struct wait wait = {.token = offer(pool, MIB(2), BIT(READER), 0)};
	struct gpuwm_chunk *chunk = take(reader, &wait.token);
	pthread_t thread = wait_in_thread(&wait, alloc_and_discard);

	UNTIL(somebody_sleeps());
	has_exited(&shared, READER);
	pthread_join(thread, NULL);
	cr_assert(eq(int, wait.result, 0));
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
}

#define GOES 9
/* On a machine whose processors have ten programs each to run, a round takes 15 ms: each thread waits for the other one's turn. */
#define ROUNDS 1000
static _Atomic unsigned begun, ended;

/* A user that exits at another moment of the offer in each round. */
static void *exit_each_round(void *unused)
{
	(void)unused;
	for (unsigned round = 1; round <= ROUNDS; round++) {
		while (atomic_load(&begun) < round)
			sched_yield(); /* on a busy machine the other thread may need this processor */
		for (volatile unsigned i = 0; i < round % 400; i++)
			;
		control_user_left(&shared.control, GOES);
		atomic_store(&ended, round);
	}
	return NULL;
}

/* In many rounds the reader exits at all moments of the offer. lib_chunk_exit.c has the one that matters most. */
TestBetween(chunk, a_reader_that_dies_while_it_is_named_is_not_waited_for, begin(), end())
{
	pthread_t thread;

	cr_assert(eq(int, pthread_create(&thread, NULL, exit_each_round, NULL), 0));
	for (unsigned round = 1; round <= ROUNDS; round++) {
		struct gpuwm_chunk *chunk = alloc(pool, 1);
		struct gpuwm_token token = {.generation = 0};
		int r;

		control_user_came(&shared.control, GOES, 1, "gone");
		atomic_store(&begun, round);
		r = gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){BIT(GOES), 0}, &token);
		cr_assert(r == 0 || r == -ESRCH);
		if (r < 0)
			OK(gpuwm_chunk_discard(chunk));
		while (atomic_load(&ended) < round)
			sched_yield();
		cr_assert(r < 0 || control_chunk_is_free(&shared.control, token.chunk));
	}
	pthread_join(thread, NULL);
	all_is_free(pool);
}

/* ---- processes -------------------------------------------------------------------- */

static int in_a_fork(const struct gpuwm_token *token, struct gpuwm_chunk *chunk)
{
	struct gpuwm_chunk *none;
	struct gpuwm_pool_figures figures;

	return gpuwm_chunk_take(reader, token, 0, &none) != -ECHILD ||
	       gpuwm_chunk_alloc(pool, 1, 0, &none) != -ECHILD || gpuwm_chunk_finish(chunk) != -ECHILD ||
	       gpuwm_region_check(pool) != -ECHILD || gpuwm_region_close(reader) != -ECHILD ||
	       gpuwm_pool_figures(pool, &figures) != -ECHILD ||
	       gpuwm_token_finished(pool, token, 0) != -ECHILD || gpuwm_token_withdraw(pool, token) != -ECHILD;
}

TestBetween(chunk, a_forked_child_can_not_use_it, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 0);
	struct gpuwm_chunk *chunk = take(reader, &token);

	cr_assert(eq(int, IN_CHILD(in_a_fork(&token, chunk)), 0));
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
}

#define VICTIM 3

/* What a reader does before it is killed. The token comes through the pipe. */
static void be_killed(int pipe, unsigned state)
{
	struct gpuwm_region *mine = open_as(&shared, VICTIM, false);
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;

	if (read(pipe, &token, sizeof(token)) != sizeof(token))
		_exit(1);
	if (state > 0)
		chunk = take(mine, &token);
	if (state > 1)
		gpuwm_chunk_finish(chunk);
	kill(getpid(), SIGKILL);
}

static void kill_in(unsigned state)
{
	struct gpuwm_token token;
	struct gpuwm_chunk *none;
	int ends[2];
	pid_t child;

	cr_assert(eq(int, pipe(ends), 0));
	child = fork();
	if (child == 0)
		be_killed(ends[0], state);
	UNTIL(atomic_load(&shared.control.head->users[VICTIM].here));
	token = offer(pool, MIB(2), BIT(VICTIM), 0);
	cr_assert(write(ends[1], &token, sizeof(token)) == sizeof(token));
	waitpid(child, NULL, 0);
	close(ends[0]);
	close(ends[1]);
	if (state < 2)
		FAILS(gpuwm_chunk_alloc(pool, 1, 0, &none), -EAGAIN);
	else
		all_is_free(pool);
	has_exited(&shared, VICTIM);
	all_is_free(pool);
}

TestBetween(chunk, a_reader_may_be_killed_at_any_time, begin(), end())
{
	need_host();
	for (unsigned state = 0; state <= 2; state++)
		kill_in(state);
}
