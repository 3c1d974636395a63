/* Pools and queues of the library, between processes and with a gpuwmd. */
#include "harness.h"
#include "region_raw.h"

#include <gpuwm/region.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

SYSTEM_SUITE(pool);

#define BYTES MB(4)

/* The memory is looked at by the CPU: on the stand-in too. */
#define LOOKS_AT_MEMORY() SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory")

static struct gpuwm_region *make(struct gpuwmd *d, struct gpuwm_client *client, const char *name)
{
	struct gpuwm_region_options options = {
		.size = sizeof(struct gpuwm_region_options),
		.name = name,
		.device = d->device,
		.bytes = BYTES,
	};
	struct gpuwm_region *region;

	OK(gpuwm_region_create(client, &options, &region));
	return region;
}

static struct gpuwm_region_info info_of(const struct gpuwm_region *region)
{
	struct gpuwm_region_info info;

	gpuwm_region_info(region, &info);
	return info;
}

static void nothing_is_used(struct gpuwm_region *pool)
{
	struct gpuwm_pool_figures figures;

	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(figures.used == 0 && figures.chunks == 0 && figures.largest_free == figures.free);
}

/* ---- a reader in a process of its own ------------------------------------------ */

static void read_token(struct gpuwm_token *ret)
{
	CHILD_ASSERT(read(CHILD_IN, ret, sizeof(*ret)) == sizeof(*ret));
}

static void tell_token(struct process *p, const struct gpuwm_token *token)
{
	cr_assert(write(p->to, token, sizeof(*token)) == sizeof(*token));
}

/* Says its slot once it has opened the region. For each token it says 't' when it has taken the chunk and seen that all of its bytes are
 * the generation's lowest; then it waits for a word: 'f' finishes. A token of generation 0 ends it. */
static int reader(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	struct gpuwm_token token;

	(void)argc;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_region_open(client, argv[0], 0, 0, &region) == 0);
	child_say((char)('A' + info_of(region).slot));
	for (;;) {
		struct gpuwm_chunk *chunk;
		const unsigned char *bytes;

		read_token(&token);
		if (token.generation == 0)
			break;
		CHILD_ASSERT(gpuwm_chunk_take(region, &token, 5000, &chunk) == 0);
		bytes = gpuwm_chunk_address(chunk);
		for (uint64_t i = 0; i < token.bytes; i++)
			CHILD_ASSERT(bytes[i] == (unsigned char)token.generation);
		child_say('t');
		CHILD_ASSERT(child_hear() == 'f');
		CHILD_ASSERT(gpuwm_chunk_finish(chunk) == 0);
		child_say('f');
	}
	CHILD_ASSERT(gpuwm_region_close(region) == 0);
	gpuwm_close(client);
	return 0;
}

static struct process reader_start(const char *region, unsigned *ret_slot)
{
	struct process p = process_start(reader, region, NULL);

	*ret_slot = (unsigned)(process_hear(&p) - 'A');
	return p;
}

static void reader_end(struct process *p)
{
	const struct gpuwm_token end = {.generation = 0};

	tell_token(p, &end);
	process_finish(p);
}

static struct gpuwm_token offer(struct gpuwm_region *pool, uint64_t bytes, unsigned slot)
{
	const struct gpuwm_readers readers = {.named = UINT32_C(1) << slot};
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;

	OK(gpuwm_chunk_alloc(pool, bytes, 5000, &chunk));
	OK(gpuwm_chunk_offer(chunk, &readers, &token));
	return token;
}

/* The same, and fills the chunk with the lowest byte of its generation. */
static struct gpuwm_token fill_and_offer(struct gpuwm_region *pool, uint64_t bytes, unsigned slot)
{
	const struct gpuwm_readers readers = {.named = UINT32_C(1) << slot};
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;
	static uint64_t count;

	OK(gpuwm_chunk_alloc(pool, bytes, 5000, &chunk));
	/* Entries are used in turn: the n-th chunk has the generation 1 + n / 1024. */
	memset(gpuwm_chunk_address(chunk), (int)(1 + count++ / 1024), bytes);
	OK(gpuwm_chunk_offer(chunk, &readers, &token));
	return token;
}

/* ---- tests ----------------------------------------------------------------------- */

GPUWMD_TEST(pool, hands_chunks_to_another_process)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool;
	struct process p;
	unsigned slot;

	LOOKS_AT_MEMORY();
	pool = make(d, client, NULL);
	p = reader_start(info_of(pool).id, &slot);
	for (unsigned i = 0; i < 1500; i++) {
		struct gpuwm_token token = fill_and_offer(pool, 1 + i * 37 % 9000, slot);

		tell_token(&p, &token);
		process_expect(&p, 't');
		process_tell(&p, 'f');
		process_expect(&p, 'f');
	}
	nothing_is_used(pool);
	reader_end(&p);
	OK(gpuwm_region_close(pool));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwm_close(client);
}

/* gpuwmd takes no part in it. */
GPUWMD_TEST(pool, goes_on_while_gpuwmd_is_stopped)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool;
	struct process p;
	unsigned slot;

	LOOKS_AT_MEMORY();
	pool = make(d, client, "a");
	p = reader_start("a", &slot);
	kill(d->pid, SIGSTOP);
	for (unsigned i = 0; i < 10; i++) {
		struct gpuwm_token token = fill_and_offer(pool, 1, slot);

		tell_token(&p, &token);
		process_expect(&p, 't');
		process_tell(&p, 'f');
		process_expect(&p, 'f');
	}
	nothing_is_used(pool);
	kill(d->pid, SIGCONT);
	reader_end(&p);
	OK(gpuwm_region_close(pool));
	gpuwm_close(client);
}

GPUWMD_TEST(pool, gets_back_what_a_killed_reader_held)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool = make(d, client, "a");
	struct gpuwm_token held, awaited;
	struct gpuwm_chunk *chunk;
	struct process p;
	char holder[64];
	unsigned slot;

	LOOKS_AT_MEMORY();
	p = reader_start("a", &slot);
	held = fill_and_offer(pool, BYTES / 2, slot);
	awaited = offer(pool, BYTES / 2, slot);
	tell_token(&p, &held);
	process_expect(&p, 't');
	FAILS(EAGAIN, gpuwm_chunk_alloc(pool, 1, 0, &chunk));
	snprintf(holder, sizeof(holder), "by process %d (", (int)p.pid);
	cr_assert(strstr(gpuwm_error()->message, holder), "%s", gpuwm_error()->message);
	FAILS(ETIMEDOUT, gpuwm_token_finished(pool, &awaited, 0));
	process_kill(&p, SIGKILL);
	OK(gpuwm_token_finished(pool, &awaited, SOON_MS));
	OK(gpuwm_chunk_alloc(pool, BYTES, SOON_MS, &chunk));
	OK(gpuwm_chunk_discard(chunk));
	OK(gpuwm_region_close(pool));
	gpuwm_close(client);
}

/* Makes the region argv[0], on the device argv[1]. Offers one chunk twice as large as the other to anybody, and allocates a third one.
 * Then it waits to be killed, or closes the region when it hears 'c'. */
static int owner(int argc, char **argv)
{
	struct gpuwm_region_options options = {
		.size = sizeof(struct gpuwm_region_options),
		.name = argv[0],
		.device = argv[1],
		.bytes = BYTES,
		.owner = argc > 2 ? GPUWM_OWNER_UID : GPUWM_OWNER_PROCESS,
		.writers = argc > 2 ? GPUWM_WRITERS_MANY : GPUWM_WRITERS_ONE,
	};
	const struct gpuwm_readers readers = {.others = 1};
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	struct gpuwm_chunk *chunk;
	struct gpuwm_token tokens[2];

	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_region_create(client, &options, &region) == 0);
	for (unsigned i = 0; i < 2; i++) {
		CHILD_ASSERT(gpuwm_chunk_alloc(region, BYTES / 4, 0, &chunk) == 0);
		CHILD_ASSERT(gpuwm_chunk_offer(chunk, &readers, &tokens[i]) == 0);
	}
	CHILD_ASSERT(gpuwm_chunk_alloc(region, BYTES / 4, 0, &chunk) == 0);
	CHILD_ASSERT(write(CHILD_OUT, tokens, sizeof(tokens)) == sizeof(tokens));
	CHILD_ASSERT(child_hear() == 'c');
	CHILD_ASSERT(gpuwm_chunk_discard(chunk) == 0);
	CHILD_ASSERT(gpuwm_region_close(region) == 0);
	child_say('c');
	return child_hear() != 'e';
}

static void hear_tokens(struct process *p, struct gpuwm_token tokens[2])
{
	cr_assert(read(p->from, tokens, 2 * sizeof(*tokens)) == 2 * sizeof(*tokens));
}

static void ends(struct gpuwmd *d, bool by_kill)
{
	struct gpuwm_client *client = client_new();
	struct process p = process_start(owner, "a", d->device, NULL);
	const int code = by_kill ? EOWNERDEAD : ESHUTDOWN;
	struct gpuwm_region *region;
	struct gpuwm_token tokens[2];
	struct gpuwm_chunk *chunk, *none;

	hear_tokens(&p, tokens);
	OK(gpuwm_region_open(client, "a", 0, 0, &region));
	OK(gpuwm_chunk_take(region, &tokens[0], 0, &chunk));
	if (by_kill) {
		process_kill(&p, SIGKILL);
	} else {
		process_tell(&p, 'c');
		process_expect(&p, 'c');
	}
	cr_assert(EVENTUALLY(SOON_MS, gpuwm_region_check(region) < 0));
	FAILS(code, gpuwm_region_check(region));
	FAILS(code, gpuwm_chunk_take(region, &tokens[1], -1, &none));
	OK(gpuwm_chunk_check(chunk));
	if (backend() != BACKEND_CUDA)
		cr_assert(*(const volatile char *)gpuwm_chunk_address(chunk) == 0);
	OK(gpuwm_chunk_finish(chunk));
	OK(gpuwm_region_close(region));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	if (!by_kill) {
		process_tell(&p, 'e');
		process_finish(&p);
	}
	gpuwm_close(client);
}

GPUWMD_TEST(pool, whose_owner_was_killed_can_still_be_read)
{
	ends(d, true);
}

GPUWMD_TEST(pool, that_was_closed_can_still_be_read)
{
	ends(d, false);
}

GPUWMD_TEST(pool, of_a_uid_goes_on_with_the_next_owner)
{
	struct gpuwm_client *client = client_new();
	struct process p = process_start(owner, "a", d->device, "uid", NULL);
	struct gpuwm_pool_figures figures;
	struct gpuwm_region *region;
	struct gpuwm_token tokens[2];
	struct gpuwm_chunk *chunk;

	hear_tokens(&p, tokens);
	FAILS(EBUSY, gpuwm_region_open(client, "a", GPUWM_REGION_OWN, 0, &region));
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, gpuwm_region_open(client, "a", GPUWM_REGION_OWN, 0, &region) == 0));
	OK(gpuwm_pool_figures(region, &figures));
	cr_assert_eq(figures.chunks, 2);
	cr_assert_eq(figures.used, BYTES / 2);
	OK(gpuwm_chunk_take(region, &tokens[0], 0, &chunk));
	OK(gpuwm_token_withdraw(region, &tokens[1]));
	OK(gpuwm_chunk_finish(chunk));
	nothing_is_used(region);
	OK(gpuwm_region_remove(client, "a"));
	FAILS(ESHUTDOWN, gpuwm_region_check(region));
	FAILS(ESHUTDOWN, gpuwm_chunk_alloc(region, 1, -1, &chunk));
	OK(gpuwm_region_close(region));
	gpuwm_close(client);
}

GPUWMD_TEST(pool, says_what_is_wrong_when_it_is_opened)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool = make(d, client, "a"), *none;
	struct gpuwm_region_options options = {
		.size = sizeof(struct gpuwm_region_options), .name = "a", .device = d->device, .bytes = 1};
	const struct gpuwm_region_info info = info_of(pool);

	cr_assert(info.slot == 0 && info.writes && info.owns && info.bytes >= BYTES && info.chunks == 1024);
	cr_assert_str_eq(info.name, "a");
	cr_assert_str_eq(info.device, d->device);
	FAILS(EEXIST, gpuwm_region_create(client, &options, &none));
	FAILS(EALREADY, gpuwm_region_open(client, "a", 0, 0, &none));
	FAILS(EALREADY, gpuwm_region_open(client, info.id, 0, 0, &none));
	FAILS(ENOENT, gpuwm_region_open(client, "b", 0, 0, &none));
	FAILS(EACCES, gpuwm_region_open(client, "a", GPUWM_REGION_WRITE, 0, &none));
	FAILS(EINVAL, gpuwm_region_open(client, "a", 4, 0, &none));
	FAILS(EINVAL, gpuwm_region_open(client, NULL, 0, 0, &none));
	FAILS(ENOENT, gpuwm_region_remove(client, "b"));
	options.bytes = 0;
	FAILS(EINVAL, gpuwm_region_create(client, &options, &none));
	OK(gpuwm_region_close(pool));
	gpuwm_close(client);
}

GPUWMD_TEST(pool, nobody_else_can_write_what_has_one_writer)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool = make(d, client, "a");
	struct raw_region opened;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "a")), 0, "%s", raw_refusal());
	if (backend() == BACKEND_HOST)
		cr_assert(fcntl(opened.memory_fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE);
	cr_assert_eq(region_close(sock, &opened), 0);
	close(sock);
	OK(gpuwm_region_close(pool));
	gpuwm_close(client);
}

GPUWMD_TEST(pool, is_listed)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool = make(d, client, "a");
	json_t *list = query(client, "region_list", "a");

	cr_assert_eq(json_array_size(json_object_get(list, "regions")), 1);
	json_decref(list);
	OK(gpuwm_region_close(pool));
	gpuwm_close(client);
}

/* ---- queues --------------------------------------------------------------------- */

static struct gpuwm_region *make_queue(struct gpuwm_client *client, const char *name, uint32_t items)
{
	struct gpuwm_region_options options = {
		.size = sizeof(struct gpuwm_region_options),
		.name = name,
		.kind = GPUWM_REGION_QUEUE,
		.writers = GPUWM_WRITERS_MANY,
		.items = items,
		.item_bytes = 1000,
	};
	struct gpuwm_region *queue;

	OK(gpuwm_region_create(client, &options, &queue));
	return queue;
}

/* Gets messages from the queue argv[0], and opens their pool, until the queue is closed. Ends with the number of chunks. */
static int getter(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_region *queue, *pool = NULL;
	struct gpuwm_message *message;
	char id[33] = "";
	int chunks = 0, r;

	(void)argc;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_region_open(client, argv[0], 0, 0, &queue) == 0);
	for (;;) {
		r = gpuwm_queue_get(queue, -1, NULL, 0, &message, id);
		if (r == -EPIPE)
			break;
		if (r == -ENXIO) {
			CHILD_ASSERT(gpuwm_region_open(client, id, 0, 0, &pool) == 0);
			continue;
		}
		CHILD_ASSERT(r == 0 && message->chunk_count == 1 && message->chunks[0]);
		CHILD_ASSERT(gpuwm_chunk_bytes(message->chunks[0]) == *(uint32_t *)message->data);
		CHILD_ASSERT(gpuwm_chunk_wait(message->chunks[0], 0) == 0);
		gpuwm_message_free(message);
		chunks++;
	}
	CHILD_ASSERT(gpuwm_region_close(pool) == 0);
	CHILD_ASSERT(gpuwm_region_close(queue) == 0);
	gpuwm_close(client);
	return chunks;
}

GPUWMD_TEST(pool, a_queue_hands_chunks_to_any_getter)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *pool = make(d, client, NULL), *queue = make_queue(client, "q", 4);
	struct process p = process_start(getter, "q", NULL);
	const struct gpuwm_region_info info = info_of(queue);
	int status;

	cr_assert(info.items == 4 && info.item_bytes == 1000 && info.kind == GPUWM_REGION_QUEUE);
	for (uint32_t i = 1; i <= 100; i++) {
		struct gpuwm_chunk *chunk;
		struct gpuwm_token token;

		OK(gpuwm_chunk_alloc(pool, i * 1000, 5000, &chunk));
		OK(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){.others = 1}, &token));
		OK(gpuwm_queue_put(queue, &(uint32_t){i * 1000}, 4, &token, 1, 5000));
	}
	OK(gpuwm_queue_shut(queue));
	status = process_join(&p);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 100);
	nothing_is_used(pool);
	OK(gpuwm_region_close(queue));
	OK(gpuwm_region_close(pool));
	gpuwm_close(client);
}
