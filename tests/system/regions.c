/* Regions: who makes, opens, closes and removes them, and what happens when a process dies. */
#include "region_raw.h"
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <gpuwm/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(regions);

/* ---- made, opened, closed, removed ------------------------------------ */

GPUWMD_TEST(regions, a_pool_is_made_opened_and_closed)
{
	struct raw_region made, opened;
	int sock = raw_client(d->socket);

	region_make(&made, sock, "kv", "process");
	cr_assert(made.slot == 0 && made.write && made.owns);
	cr_assert_eq(made.bytes, MB(1));
	cr_assert(version_id_equal(&made.control.head->region, (const struct version_id *)made.id));
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert(opened.slot == 1 && !opened.write && !opened.owns);
	cr_assert(region_is(d, "kv", "ready", 2));
	cr_assert(atomic_load(&made.control.head->users[1].here));
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert(region_is(d, "kv", "ready", 1));
	cr_assert(!atomic_load(&made.control.head->users[1].here));
	cr_assert_eq(RAW_ASK(sock, "region_close", ID("use", opened.use)), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

GPUWMD_TEST(regions, a_region_on_a_device_is_charged_to_it)
{
	struct raw_region made;
	int sock = raw_client(d->socket);
	uint64_t before = device_used(d);

	cr_assert_eq(REGION_CREATE(&made, sock, TEXT("device", d->device), TEXT("writers", "many"),
				   NUMBER("bytes", 5), NUMBER("chunks", 1)),
		     0, "%s", raw_refusal());
	cr_assert_eq(made.bytes, device_number(d, "granularity"));
	cr_assert_eq(region_number(d, made.text, "bytes"), made.bytes);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == before + made.bytes));
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == before));
	close(sock);
}

/* The first owner is the one that made it; after it the region is there for the next one. */
GPUWMD_TEST(regions, a_users_region_outlives_its_owner)
{
	struct process owner = region_user_start("kv", "u");
	struct raw_region next, third, none;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv"), FLAG("own", true)), -EBUSY);
	cr_assert(strstr(raw_refusal(), "owns the region"), "%s", raw_refusal());
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 0)));
	cr_assert_eq(REGION_OPEN(&next, sock, TEXT("region", "kv"), FLAG("own", true)), 0, "%s", raw_refusal());
	cr_assert(next.owns && next.write);
	cr_assert_neq(next.slot, 0, "a slot was given again before others that nobody had");
	cr_assert_eq(REGION_OPEN(&third, sock, TEXT("region", "kv"), FLAG("write", true)), 0);
	cr_assert(third.write && !third.owns);
	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", "kv")), 0);
	cr_assert_eq(atomic_load(&third.control.head->ended), CONTROL_REMOVED);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", third.text)), -ESHUTDOWN);
	cr_assert_eq(region_close(sock, &next), 0);
	cr_assert_eq(region_close(sock, &third), 0);
	close(sock);
}

/* Nobody owns it; it ends with the process that made it. */
GPUWMD_TEST(regions, a_queue_is_written_by_many)
{
	struct raw_region made, opened, none;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_CREATE(&made, sock, TEXT("name", "q"), TEXT("kind", "queue"),
				   TEXT("writers", "many"), TEXT("device", "host"), NUMBER("bytes", 640),
				   NUMBER("item_bytes", 64)),
		     0, "%s", raw_refusal());
	cr_assert(made.write && !made.owns && made.bytes == 640 && made.chunks == 0);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "q"), FLAG("own", true)), -EINVAL);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "q"), FLAG("write", true)), 0, "%s",
		     raw_refusal());
	cr_assert(opened.write && !opened.owns);
	atomic_store(&made.control.head->end, 3);
	cr_assert_eq(region_number(d, "q", "messages"), 3);
	/* Who dies with the lock leaves it open. */
	atomic_store(&made.control.head->lock, (uint32_t)opened.slot + 1);
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(atomic_load(&made.control.head->lock), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

/* ---- death ------------------------------------------------------------ */

GPUWMD_TEST(regions, a_dead_reader_lets_go_and_the_region_goes_on)
{
	struct raw_region made;
	int sock = raw_client(d->socket);
	struct process reader;
	uint64_t word;

	region_make(&made, sock, "kv", "process");
	reader = region_user_start("kv", "r");
	/* It waits for the reader in slot 1 and for itself. */
	word = chunk_word_offered(chunk_word_filling(1, 0), 0, 1 << 0 | 1 << 1, 0);
	atomic_store(&made.control.chunks[3].generation, 1);
	atomic_store(&made.control.chunks[3].written, 1);
	atomic_store(&made.control.chunks[3].word, word);
	process_kill(&reader, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 1)));
	word = atomic_load(&made.control.chunks[3].word);
	cr_assert_eq(chunk_word_state(word, 1), CHUNK_NONE);
	cr_assert_eq(chunk_word_state(word, 0), CHUNK_WAITING);
	cr_assert(!atomic_load(&made.control.head->users[1].here));
	cr_assert_eq(atomic_load(&made.control.chunks[3].lost), 0);
	cr_assert_eq(atomic_load(control_finished(&made.control, 3, 1)), 1);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
}

GPUWMD_TEST(regions, a_dead_owner_ends_its_region)
{
	struct process owner = region_user_start("kv", "m");
	struct raw_region opened, again;
	int sock = raw_client(d->socket);
	uint64_t used = host_used(d);

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	region_user_does(&owner, 'h');
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, atomic_load(&opened.control.head->ended) == CONTROL_OWNER_DIED));
	cr_assert_eq(atomic_load(&opened.control.head->ended_by), 0);
	cr_assert_eq(atomic_load(&opened.control.chunks[0].lost), 5);
	cr_assert_eq(atomic_load(&opened.control.chunks[0].written), 5);
	cr_assert(chunk_word_is_free(atomic_load(&opened.control.chunks[0].word)));
	cr_assert(region_is(d, "kv", "ended", 1));
	cr_assert_eq(REGION_OPEN(&again, sock, TEXT("region", "kv")), -EOWNERDEAD);
	cr_assert(strstr(raw_refusal(), "exited"), "%s", raw_refusal());
	cr_assert_eq(host_used(d), used, "a user still maps it");
	/* Its name is free. */
	region_make(&again, sock, "kv", "process");
	cr_assert_eq(region_close(sock, &again), 0);
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

GPUWMD_TEST(regions, a_session_that_ends_changes_nothing)
{
	struct process owner = region_user_start("kv", "m"), reader = region_user_start("kv", "r");

	region_user_does(&owner, 's');
	region_user_does(&reader, 's');
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "sessions") == 1));
	cr_assert(region_is(d, "kv", "ready", 2));
	process_kill(&reader, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 1)));
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

GPUWMD_TEST(regions, another_connection_gives_a_slot_back)
{
	struct raw_region made;
	int sock = raw_client(d->socket), other;

	region_make(&made, sock, "kv", "process");
	close(sock);
	other = raw_client(d->socket);
	cr_assert_eq(region_close(other, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(other);
}

/* The slot would be nobody's otherwise, and an owner would keep itself out. */
GPUWMD_TEST(regions, who_lost_the_answer_asks_again_and_gets_the_same_slot)
{
	const uint8_t use[16] = {7};
	struct raw_region made, first, again, other;
	int sock = raw_client(d->socket);

	region_make(&made, sock, "kv", "uid");
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert_eq(REGION_OPEN(&first, sock, TEXT("region", "kv"), FLAG("own", true), ID("use", use)), 0);
	region_forget(&first);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&again, sock, TEXT("region", "kv"), FLAG("own", true), ID("use", use)), 0,
		     "%s", raw_refusal());
	cr_assert(again.slot == first.slot && again.owns && memcmp(again.use, use, sizeof use) == 0);
	cr_assert(region_is(d, "kv", "ready", 1));
	region_make(&other, sock, "other", "process");
	cr_assert_eq(REGION_OPEN(&first, sock, TEXT("region", "other"), ID("use", use)), -EINVAL);
	cr_assert_eq(region_close(sock, &other), 0);
	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", "kv")), 0);
	cr_assert_eq(region_close(sock, &again), 0);
	close(sock);
}

#define CREATE_AGAIN(sock, ret, name, use)                                                                     \
	REGION_CREATE(ret, sock, TEXT("name", name), TEXT("device", "host"), TEXT("writers", "many"),          \
		      NUMBER("bytes", MB(1)), NUMBER("chunks", 1), ID("use", use))

GPUWMD_TEST(regions, a_create_that_is_sent_again_makes_no_second_region)
{
	const uint8_t use[16] = {8};
	struct raw_region first, again, none;
	int sock = raw_client(d->socket);

	cr_assert_eq(CREATE_AGAIN(sock, &first, "kv", use), 0, "%s", raw_refusal());
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(CREATE_AGAIN(sock, &again, "kv", use), 0, "%s", raw_refusal());
	cr_assert(strcmp(again.text, first.text) == 0 && again.slot == first.slot && again.owns);
	cr_assert(memcmp(again.use, use, sizeof use) == 0 && regions_count(d) == 1);
	cr_assert(region_is(d, "kv", "ready", 1));
	cr_assert_eq(CREATE_AGAIN(sock, &none, "other", use), -EINVAL);
	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", "kv")), 0);
	cr_assert_eq(CREATE_AGAIN(sock, &none, "kv", use), -ESHUTDOWN);
	cr_assert_eq(region_close(sock, &again), 0);
	region_forget(&first);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

/* The first request is under way, and gpuwmd does not know yet that nobody listens to its answer. */
GPUWMD_TEST(regions, a_create_that_is_sent_again_takes_the_place_of_the_first)
{
	const uint8_t use[16] = {8};
	const struct param *params = PARAMS(TEXT("name", "kv"), TEXT("device", "host"), NUMBER("bytes", MB(1)),
					    NUMBER("chunks", 1), ID("use", use));
	int sock = raw_client(d->socket), other = raw_client(d->socket);
	static struct raw_reply reply;
	struct raw_region made;

	loaders_kill(d, SIGSTOP);
	raw_send_with(sock, 7, "region_create", params);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 1));
	raw_send_with(other, 8, "region_create", params);
	cr_assert(raw_receive(sock, &reply));
	cr_assert_eq(reply.message.error.code, -ECANCELED);
	raw_reply_clear(&reply);
	close(sock);
	loaders_kill(d, SIGCONT);
	cr_assert(raw_receive(other, &reply));
	cr_assert_eq(reply.message.error.code, 0, "%s", reply.message.error.message);
	raw_reply_clear(&reply);
	cr_assert_eq(region_ask(&made, other, "region_create", params), 0, "%s", raw_refusal());
	cr_assert(region_is(d, "kv", "ready", 1) && regions_count(d) == 1);
	cr_assert_eq(region_close(other, &made), 0);
	close(other);
}

/* gpuwmd lacks descriptors for the answer, or the region has ended. */
GPUWMD_TEST(regions, a_repeat_that_fails_leaves_the_use_alone)
{
	const uint8_t use[16] = {7};
	struct raw_region made, opened, none;
	int sock = raw_client(d->socket);
	struct rlimit limit, low;

	region_make(&made, sock, "kv", "process");
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv"), ID("use", use)), 0, "%s", raw_refusal());
	cr_assert_eq(prlimit(d->pid, RLIMIT_NOFILE, NULL, &limit), 0);
	low = (struct rlimit){3, limit.rlim_max};
	cr_assert_eq(prlimit(d->pid, RLIMIT_NOFILE, &low, NULL), 0);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv"), ID("use", use)), -EMFILE);
	cr_assert_eq(prlimit(d->pid, RLIMIT_NOFILE, &limit, NULL), 0);
	cr_assert(region_is(d, "kv", "ready", 2));
	cr_assert(atomic_load(&made.control.head->users[1].here));
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv"), ID("use", use)), -ESHUTDOWN);
	region_make(&made, sock, "kv", "process");
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv"), ID("use", use)), -ESHUTDOWN);
	cr_assert(region_is(d, opened.text, "ended", 1), "the use is there as long as it is not closed");
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
}

/* Says 'e' if there is no descriptor for the answer. */
static int poor(int argc, char **argv)
{
	struct gpuwm_region_options options = {.size = sizeof options, .name = "kv", .bytes = MB(1)};
	struct rlimit limit = {0, 0};
	struct gpuwm_region *region;
	struct gpuwm_client *client;
	int free_fd;

	(void)argc;
	(void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	free_fd = dup(0);
	CHILD_ASSERT(free_fd >= 0 && close(free_fd) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = (rlim_t)free_fd;
	CHILD_ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	child_say(gpuwm_region_create(client, &options, &region) == -EMFILE ? 'e' : 'n');
	child_hear();
	return 0;
}

/* The library gives back what it could not take. */
GPUWMD_TEST(regions, a_process_without_descriptors_leaves_no_region)
{
	struct process p = process_start(poor, NULL);

	process_expect(&p, 'e');
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	process_kill(&p, SIGKILL);
}

/* Its state stays until the owner uses the entry again. */
GPUWMD_TEST(regions, who_has_finished_in_a_stream_holds_nothing)
{
	struct raw_region made;
	int sock = raw_client(d->socket);

	region_make(&made, sock, "kv", "process");
	atomic_store(&made.control.chunks[3].word, chunk_word_filling(1, 0));
	atomic_store(&made.control.chunks[3].bytes, 1024);
	atomic_store(&made.control.chunks[3].generation, 1);
	cr_assert_eq(region_number(d, "kv", "chunks_used"), 1);
	atomic_store(control_finished(&made.control, 3, 0), 1);
	cr_assert_eq(region_number(d, "kv", "chunks_used"), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
}

static bool has(struct gpuwmd *d, const char *filter, const char *key)
{
	json_t *answer = query(d->admin, "region_list", filter), *region, *user;
	bool it_has;

	region = json_array_get(json_object_get(answer, "regions"), 0);
	user = json_array_get(json_object_get(region, "users"), 0);
	cr_assert(region && user && json_object_get(region, "bytes_used"));
	it_has = json_object_get(region, key) || json_object_get(user, key);
	json_decref(answer);
	return it_has;
}

/* 256 of them with 4,096 chunks each would keep gpuwmd busy. */
GPUWMD_TEST(regions, a_list_of_all_has_no_more_than_a_glance_gives)
{
	static const char *const keys[] = {"largest_free", "holds", "oldest"};
	struct raw_region made;
	int sock = raw_client(d->socket);

	region_make(&made, sock, "kv", "process");
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		cr_assert(!has(d, NULL, keys[i]), "%s", keys[i]);
		cr_assert(has(d, "kv", keys[i]), "%s", keys[i]);
		cr_assert(has(d, made.text, keys[i]), "%s", keys[i]);
	}
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
}

/* ---- descriptors ------------------------------------------------------ */

static bool can_map(int fd, int protection)
{
	void *address = mmap(NULL, MB(1), protection, MAP_SHARED, fd, 0);

	if (address == MAP_FAILED)
		return false;
	munmap(address, MB(1));
	return true;
}

GPUWMD_TEST(regions, a_reader_on_host_cannot_write)
{
	struct raw_region made, opened, writer;
	int sock = raw_client(d->socket);
	struct stat st;

	region_make(&made, sock, NULL, "process");
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", made.text)), 0, "%s", raw_refusal());
	cr_assert(can_map(made.memory_fd, PROT_READ | PROT_WRITE));
	cr_assert(can_map(opened.memory_fd, PROT_READ));
	cr_assert(!can_map(opened.memory_fd, PROT_READ | PROT_WRITE));
	cr_assert_eq(write(opened.memory_fd, "x", 1), -1);
	cr_assert(fstat(opened.memory_fd, &st) == 0 && (st.st_mode & 0777) == 0600);
	cr_assert(fstat(opened.control_fd, &st) == 0 && (st.st_mode & 0777) == 0600);
	cr_assert_lt(ftruncate(opened.control_fd, 0), 0, "the control memory was resized");
	cr_assert_lt(fcntl(made.memory_fd, F_ADD_SEALS, F_SEAL_WRITE), 0, "others are to write there");
	cr_assert_eq(REGION_OPEN(&writer, sock, TEXT("region", made.text), FLAG("write", true)), 0);
	cr_assert(can_map(writer.memory_fd, PROT_READ | PROT_WRITE));
	cr_assert_eq(region_close(sock, &writer), 0);
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
}

GPUWMD_TEST(regions, one_writer_seals_its_memory_before_others_open_it)
{
	struct raw_region made, opened;
	int sock = raw_client(d->socket);
	void *writer;

	cr_assert_eq(REGION_CREATE(&made, sock, TEXT("name", "kv"), TEXT("device", "host"),
				   NUMBER("bytes", MB(1)), NUMBER("chunks", 1)),
		     0, "%s", raw_refusal());
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), -EAGAIN);
	writer = mmap(NULL, MB(1), PROT_READ | PROT_WRITE, MAP_SHARED, made.memory_fd, 0);
	cr_assert_neq(writer, MAP_FAILED);
	region_seal(&made);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv"), FLAG("write", true)), -EACCES);
	cr_assert(strstr(raw_refusal(), "many writers"), "%s", raw_refusal());
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv"), FLAG("own", true)), -EACCES);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	memset(writer, 7, MB(1));
	cr_assert(!can_map(made.memory_fd, PROT_READ | PROT_WRITE), "its writer maps it once");
	cr_assert(can_map(opened.memory_fd, PROT_READ));
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	munmap(writer, MB(1));
	close(sock);
}

/* ---- refusals --------------------------------------------------------- */

GPUWMD_TEST(regions, what_is_asked_wrongly_is_refused)
{
	struct raw_region r, made;
	int sock = raw_client(d->socket);

	region_make(&made, sock, "kv", "process");
	cr_assert_eq(REGION_CREATE(&r, sock, TEXT("name", "kv"), TEXT("device", "host"), NUMBER("bytes", 1),
				   NUMBER("chunks", 1)),
		     -EEXIST);
	cr_assert_eq(REGION_CREATE(&r, sock, TEXT("device", "GPU-0"), NUMBER("bytes", 1), NUMBER("chunks", 1)),
		     -ENODEV);
	cr_assert_eq(REGION_CREATE(&r, sock, TEXT("device", "host"), NUMBER("bytes", UINT64_MAX),
				   NUMBER("chunks", 1)),
		     -ENOSPC);
	cr_assert_eq(REGION_CREATE(&r, sock, TEXT("device", "host"), NUMBER("bytes", MB(1) << 30),
				   NUMBER("chunks", 1)),
		     -ENOSPC);
	cr_assert(strstr(raw_refusal(), "no room on host"), "%s", raw_refusal());
	cr_assert_eq(REGION_CREATE(&r, sock, TEXT("device", "host"), NUMBER("bytes", 1)), -EINVAL);
	cr_assert_eq(REGION_CREATE(&r, sock, TEXT("device", "host"), NUMBER("bytes", 1), NUMBER("chunks", 1),
				   TEXT("owner", "uid")),
		     -EINVAL, "one writer that does not outlive its process");
	cr_assert_eq(REGION_OPEN(&r, sock, TEXT("region", "other")), -ENOENT);
	cr_assert_eq(REGION_OPEN(&r, sock, TEXT("region", "kv"), FLAG("own", true)), -EACCES);
	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", "other")), -ENOENT);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

GPUWMD_TEST(regions, a_region_has_26_users)
{
	struct raw_region made, opened[REGION_USERS_MAX];
	int sock = raw_client(d->socket);

	region_make(&made, sock, "kv", "process");
	for (unsigned i = 1; i < REGION_USERS_MAX; i++)
		cr_assert_eq(REGION_OPEN(&opened[i], sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert_eq(REGION_OPEN(&opened[0], sock, TEXT("region", "kv")), -EDQUOT);
	cr_assert(strstr(raw_refusal(), "26 users"), "%s", raw_refusal());
	cr_assert_eq(region_close(sock, &opened[5]), 0);
	cr_assert_eq(REGION_OPEN(&opened[5], sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert_eq(opened[5].slot, 5);
	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", "kv")), 0);
	for (unsigned i = 1; i < REGION_USERS_MAX; i++)
		cr_assert_eq(region_close(sock, &opened[i]), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
}
