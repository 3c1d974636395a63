/* Queues: messages, the chunks that they hand over, and processes that die in between. */
#include "client/region/queue.h"
#include "tests/support/any/between.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/pools.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWNER 0
#define READER 1
#define ITEMS 4
#define ITEM_BYTES 200

static struct shared_region shared, shared_pool;
static struct gpuwm_region *queue, *getter; /* as two processes have it */
static struct gpuwm_region *pool, *reader;
static struct gpuwm_message *message;
static char missing[33];

static void begin(void)
{
	struct error error;

	share(&shared, &(struct shared_wish){.items = ITEMS, .item_bytes = ITEM_BYTES});
	queue = open_as(&shared, OWNER, true);
	getter = open_as(&shared, READER, false);
	share(&shared_pool, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&shared_pool, OWNER, true);
	reader = open_as(&shared_pool, READER, false);
	cr_assert(eq(int, region_list_add(reader, &error), 0));
}

static void end(void)
{
	close_as(&shared, queue);
	close_as(&shared, getter);
	close_as(&shared_pool, reader);
	close_as(&shared_pool, pool);
	share_end(&shared);
	share_end(&shared_pool);
}

TestSuite(queue, .timeout = 60);

static void put(const char *text)
{
	OK(gpuwm_queue_put(queue, text, (uint32_t)strlen(text), NULL, 0, 0));
}

static void is_next(const char *text)
{
	OK(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing));
	cr_assert(eq(u32, message->bytes, (uint32_t)strlen(text)));
	cr_assert(memcmp(message->data, text, strlen(text)) == 0);
	gpuwm_message_free(message);
}

static void has_length(uint64_t length)
{
	uint64_t messages;

	OK(gpuwm_queue_length(getter, &messages));
	cr_assert(eq(u64, messages, length));
}

TestBetween(queue, messages_come_in_their_order, begin(), end())
{
	for (unsigned i = 0; i < 3 * ITEMS; i++) {
		put("first");
		put("");
		has_length(2);
		is_next("first");
		is_next("");
	}
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -EAGAIN);
	FAILS(gpuwm_queue_get(getter, 2, NULL, 0, &message, NULL), -EAGAIN);
}

TestBetween(queue, has_as_many_messages_as_were_asked_for, begin(), end())
{
	for (unsigned i = 0; i < ITEMS; i++)
		put("a");
	FAILS(gpuwm_queue_put(queue, "b", 1, NULL, 0, 2), -EAGAIN);
	SAYS("full");
	is_next("a");
	put("b");
	for (unsigned i = 0; i < ITEMS - 1; i++)
		is_next("a");
	is_next("b");
}

TestBetween(queue, a_message_has_up_to_item_bytes, begin(), end())
{
	char bytes[ITEM_BYTES + 1] = {0};
	struct gpuwm_token tokens[4] = {{.chunk = 0}};

	OK(gpuwm_queue_put(queue, bytes, ITEM_BYTES, NULL, 0, 0));
	FAILS(gpuwm_queue_put(queue, bytes, ITEM_BYTES + 1, NULL, 0, 0), -EMSGSIZE);
	OK(gpuwm_queue_put(queue, bytes, ITEM_BYTES - 4 * 48, tokens, 4, 0));
	FAILS(gpuwm_queue_put(queue, bytes, ITEM_BYTES - 4 * 48 + 1, tokens, 4, 0), -EMSGSIZE);
	FAILS(gpuwm_queue_put(queue, bytes, UINT32_MAX, tokens, UINT32_MAX, 0), -EMSGSIZE);
	FAILS(gpuwm_queue_put(queue, NULL, 1, NULL, 0, 0), -EINVAL);
	FAILS(gpuwm_queue_put(queue, NULL, 0, NULL, 1, 0), -EINVAL);
	FAILS(gpuwm_queue_put(NULL, NULL, 0, NULL, 0, 0), -EINVAL);
}

TestBetween(queue, who_opened_it_for_reading_puts_nothing, begin(), end())
{
	getter->writes = false;
	FAILS(gpuwm_queue_put(getter, "a", 1, NULL, 0, 0), -EACCES);
}

TestBetween(queue, that_was_closed_can_be_emptied, begin(), end())
{
	put("a");
	OK(gpuwm_queue_shut(getter));
	FAILS(gpuwm_queue_put(queue, "b", 1, NULL, 0, -1), -EPIPE);
	is_next("a");
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, missing), -EPIPE);
}

TestBetween(queue, that_has_ended_gives_nothing, begin(), end())
{
	put("a");
	control_ended(&shared.control, CONTROL_OWNER_DIED, OWNER);
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, missing), -EOWNERDEAD);
	FAILS(gpuwm_queue_put(queue, "b", 1, NULL, 0, -1), -EOWNERDEAD);
}

/* ---- chunks ---------------------------------------------------------------------- */

TestBetween(queue, hands_chunks_over, begin(), end())
{
	struct gpuwm_token tokens[2] = {offer(pool, 300, 0, 1), offer(pool, 500, 1 << READER, 0)};
	struct gpuwm_chunk *chunk;

	OK(gpuwm_queue_put(queue, "two", 3, tokens, 2, 0));
	OK(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing));
	cr_assert(eq(u32, message->chunk_count, 2));
	cr_assert(memcmp(message->tokens, tokens, sizeof(tokens)) == 0);
	cr_assert(eq(u64, gpuwm_chunk_bytes(message->chunks[0]), 300));
	OK(gpuwm_chunk_wait(message->chunks[1], 0));
	chunk = message->chunks[1];
	message->chunks[1] = NULL;
	gpuwm_message_free(message);
	OK(gpuwm_token_finished(pool, &tokens[0], 0));
	FAILS(gpuwm_token_finished(pool, &tokens[1], 0), -ETIMEDOUT);
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
	gpuwm_message_free(NULL);
}

TestBetween(queue, tokens_that_are_out_of_date_come_without_a_chunk, begin(), end())
{
	struct gpuwm_token tokens[3] = {offer(pool, 1, 0, 1), offer(pool, 1, 0, 1), offer(pool, 1, 0, 1)};

	OK(gpuwm_token_withdraw(pool, &tokens[0]));
	tokens[1].chunk = 99;
	OK(gpuwm_queue_put(queue, NULL, 0, tokens, 3, 0));
	OK(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing));
	cr_assert(message->chunks[0] == NULL && message->chunks[1] == NULL && message->chunks[2] != NULL);
	gpuwm_message_free(message);
}

TestBetween(queue, a_message_waits_for_its_pool, begin(), end())
{
	struct gpuwm_token tokens[2] = {offer(pool, 1, 0, 1), offer(pool, 1, 0, 1)};
	struct error error;

	const char *gone[2] = {"no id", NULL};
	char other[33];

	tokens[1].region[0] ^= 1;
	OK(gpuwm_queue_put(queue, NULL, 0, tokens, 2, 0));
	FAILS(gpuwm_queue_get(getter, 0, gone, 2, &message, missing), -EINVAL);
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -ENXIO);
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, NULL), -ENXIO);
	has_length(1);
	cr_assert(eq(int, atomic_load(&reader->handles), 0));
	cr_assert(ne(str, missing, reader->id_text));
	strcpy(other, missing);
	cr_assert(eq(str, missing + 2, reader->id_text + 2));
	reader->id.bytes[0] ^= 1;
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -ENXIO);
	reader->id.bytes[0] ^= 1;
	region_list_remove(reader);
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -ENXIO);
	cr_assert(eq(str, missing, reader->id_text));
	/* The pool is gone: the message can be got without the chunks. */
	gone[0] = missing;
	gone[1] = other;
	OK(gpuwm_queue_get(getter, 0, gone, 2, &message, NULL));
	cr_assert(message->chunk_count == 2 && message->chunks[0] == NULL && message->chunks[1] == NULL);
	gpuwm_message_free(message);
	cr_assert(eq(int, region_list_add(reader, &error), 0));
}

TestBetween(queue, a_message_comes_without_the_chunks_of_a_pool_that_is_gone, begin(), end())
{
	struct gpuwm_token tokens[2] = {offer(pool, 1, 0, 1), offer(pool, 1, 0, 1)};
	const char *gone[1];

	tokens[0].region[0] ^= 1;
	OK(gpuwm_queue_put(queue, NULL, 0, tokens, 2, 0));
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -ENXIO);
	gone[0] = reader->id_text;
	FAILS(gpuwm_queue_get(getter, 0, gone, 1, &message, missing), -ENXIO); /* it needs another one */
	gone[0] = missing;
	OK(gpuwm_queue_get(getter, 0, gone, 1, &message, NULL));
	cr_assert(message->chunks[0] == NULL && message->chunks[1] != NULL);
	gpuwm_message_free(message);
	has_length(0);
}

/* ---- waiting ------------------------------------------------------------------------ */

static void *get_one(void *data)
{
	*(_Atomic int *)data = gpuwm_queue_get(getter, -1, NULL, 0, &message, missing);
	return NULL;
}

static bool sleeps_on(struct control_bell *bell)
{
	return atomic_load(&bell->sleepers) > 0;
}

static pthread_t in_thread(void *(*function)(void *), void *data)
{
	pthread_t thread;

	cr_assert(eq(int, pthread_create(&thread, NULL, function, data), 0));
	return thread;
}

TestBetween(queue, a_getter_waits_for_a_message, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread = in_thread(get_one, &result);

	UNTIL(sleeps_on(&shared.control.head->put));
	cr_assert(eq(int, result, 1));
	put("now");
	pthread_join(thread, NULL);
	cr_assert(result == 0 && memcmp(message->data, "now", 3) == 0);
	gpuwm_message_free(message);
}

static void *put_one(void *data)
{
	*(_Atomic int *)data = gpuwm_queue_put(queue, "later", 5, NULL, 0, -1);
	return NULL;
}

TestBetween(queue, a_putter_waits_for_room, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread;

	for (unsigned i = 0; i < ITEMS; i++)
		put("a");
	thread = in_thread(put_one, &result);
	UNTIL(sleeps_on(&shared.control.head->got));
	cr_assert(eq(int, result, 1));
	is_next("a");
	pthread_join(thread, NULL);
	cr_assert(eq(int, result, 0));
	has_length(ITEMS);
}

TestBetween(queue, closing_wakes_a_getter, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread = in_thread(get_one, &result);

	UNTIL(sleeps_on(&shared.control.head->put));
	OK(gpuwm_queue_shut(queue));
	pthread_join(thread, NULL);
	cr_assert(eq(int, result, -EPIPE));
}

TestBetween(queue, closing_wakes_a_putter, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread;

	for (unsigned i = 0; i < ITEMS; i++)
		put("a");
	thread = in_thread(put_one, &result);
	UNTIL(sleeps_on(&shared.control.head->got));
	OK(gpuwm_queue_shut(queue));
	pthread_join(thread, NULL);
	cr_assert(eq(int, result, -EPIPE));
}

TestBetween(queue, a_dead_user_wakes_everybody, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread = in_thread(get_one, &result);

	UNTIL(sleeps_on(&shared.control.head->put));
	/* The sender was killed before it rang. */
	atomic_store(&queue->control.head->end, 1);
	has_exited(&shared, OWNER);
	pthread_join(thread, NULL);
	cr_assert(eq(int, result, 0));
	gpuwm_message_free(message);
}

/* ---- what somebody wrote over ---------------------------------------------------------- */

TestBetween(queue, notices_what_no_user_writes, begin(), end())
{
	struct queue_cell_head head = {ITEM_BYTES, 1};

	atomic_store(&shared.control.head->end, ITEMS + 1);
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, missing), -EUCLEAN);
	FAILS(gpuwm_queue_put(queue, "a", 1, NULL, 0, -1), -EUCLEAN);
	FAILS(gpuwm_queue_length(queue, &(uint64_t){0}), -EUCLEAN);
	atomic_store(&shared.control.head->end, 1);
	memcpy(queue_cell(queue, 0), &head, sizeof(head));
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, missing), -EUCLEAN);
	head = (struct queue_cell_head){0, UINT32_MAX};
	memcpy(queue_cell(queue, 0), &head, sizeof(head));
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, missing), -EUCLEAN);
	head = (struct queue_cell_head){UINT32_MAX, 0};
	memcpy(queue_cell(queue, 0), &head, sizeof(head));
	FAILS(gpuwm_queue_get(getter, -1, NULL, 0, &message, missing), -EUCLEAN);
}

/* ---- the lock --------------------------------------------------------------------------- */

TestBetween(queue, says_who_has_the_lock, begin(), end())
{
	atomic_store(&shared.control.head->lock, 1 + OWNER);
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -EBUSY);
	SAYS("process 1000 (user-a)");
	atomic_store(&shared.control.head->lock, 0);
	put("a");
	is_next("a");
}

TestBetween(queue, says_that_another_thread_waits_for_the_lock, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread;

	put("a");
	put("b");
	atomic_store(&shared.control.head->lock, 1 + OWNER);
	thread = in_thread(get_one, &result);
	UNTIL(atomic_load(&shared.control.head->lock_sleepers) > 0);
	FAILS(gpuwm_queue_get(getter, 0, NULL, 0, &message, missing), -EBUSY);
	SAYS("another thread of this process");
	atomic_store(&shared.control.head->lock, 0);
	pthread_join(thread, NULL);
	cr_assert(eq(int, result, 0));
	gpuwm_message_free(message);
	is_next("b");
}

TestBetween(queue, a_holder_that_dies_loses_the_lock, begin(), end())
{
	_Atomic int result = 1;
	pthread_t thread;

	put("a");
	atomic_store(&shared.control.head->lock, 1 + OWNER);
	thread = in_thread(get_one, &result);
	UNTIL(atomic_load(&shared.control.head->lock_sleepers) > 0);
	has_exited(&shared, OWNER);
	pthread_join(thread, NULL);
	cr_assert(eq(int, result, 0));
	gpuwm_message_free(message);
}

/* A child gets and puts until it is killed, also with the lock. */
static void play_until_killed(void)
{
	struct gpuwm_region *mine = open_as(&shared, 2, false);
	struct gpuwm_region *of_pool = open_as(&shared_pool, 2, false);
	struct error error;

	region_list_add(of_pool, &error);
	for (;;) {
		struct gpuwm_message *next;

		if (gpuwm_queue_get(mine, 0, NULL, 0, &next, NULL) == 0) {
			gpuwm_queue_put(mine, next->data, next->bytes, NULL, 0, 0);
			gpuwm_message_free(next);
		}
	}
}

TestBetween(queue, survives_processes_that_are_killed, begin(), end(), .timeout = 120)
{
	unsigned seed = 5;

	need_host();
	for (unsigned round = 0; round < 100; round++) {
		struct gpuwm_token token = offer(pool, MIB(1), 0, 1);
		uint64_t length;
		pid_t child = fork();

		if (child == 0)
			play_until_killed();
		OK(gpuwm_queue_put(queue, "abc", 3, &token, 1, 5000));
		usleep((useconds_t)rand_r(&seed) % 3000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		has_exited(&shared, 2);
		has_exited(&shared_pool, 2);
		OK(gpuwm_queue_length(getter, &length));
		while (gpuwm_queue_get(getter, 0, NULL, 0, &message, missing) == 0) {
			cr_assert(message->bytes == 3 && memcmp(message->data, "abc", 3) == 0);
			gpuwm_message_free(message);
			length--;
		}
		cr_assert(eq(u64, length, 0));
		OK(gpuwm_token_withdraw(pool, &token));
		all_is_free(pool);
	}
}

/* ---- many --------------------------------------------------------------------------------- */

#define THREADS 8
#define EACH 3000
static struct gpuwm_region *users[THREADS];
static _Atomic unsigned seen[THREADS][EACH];
static _Atomic int wrong;

static void *put_many(void *data)
{
	const unsigned who = (unsigned)(uintptr_t)data;

	for (unsigned i = 0; i < EACH; i++) {
		const unsigned text[2] = {who, i};

		if (gpuwm_queue_put(users[who % 4], text, sizeof(text), NULL, 0, -1) < 0)
			wrong = 1;
	}
	return NULL;
}

static void *get_many(void *data)
{
	int last[THREADS];

	memset(last, -1, sizeof(last));
	for (;;) {
		struct gpuwm_message *next;
		unsigned text[2];

		if (gpuwm_queue_get(users[4 + (uintptr_t)data % 4], -1, NULL, 0, &next, NULL) < 0)
			return NULL;
		memcpy(text, next->data, sizeof(text));
		if ((int)text[1] <= last[text[0]])
			wrong = 2;
		last[text[0]] = (int)text[1];
		seen[text[0]][text[1]]++;
		gpuwm_message_free(next);
	}
}

TestBetween(queue, each_message_of_many_senders_comes_once_and_in_order, begin(), end(), .timeout = 120)
{
	pthread_t putters[THREADS], getters[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		users[i] = open_as(&shared, 10 + i, false);
	for (uintptr_t i = 0; i < THREADS; i++) {
		putters[i] = in_thread(put_many, (void *)i);
		getters[i] = in_thread(get_many, (void *)i);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(putters[i], NULL);
	OK(gpuwm_queue_shut(queue));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(getters[i], NULL);
	cr_assert(eq(int, wrong, 0));
	for (unsigned i = 0; i < THREADS * EACH; i++)
		cr_assert(eq(u32, seen[i / EACH][i % EACH], 1));
	for (unsigned i = 0; i < THREADS; i++)
		close_as(&shared, users[i]);
}
