/* Versions without a name: they live as long as anybody has a lease of them. */
#include "kept.h"

#include "../../proto/index/index.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

SYSTEM_SUITE(nameless);

static struct gpuwm_publish *begin(struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_publish *publish;

	OK(publish_begin(client, d->device, NULL, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	return publish;
}

/* What an anonymous publisher has. */
static struct gpuwm_mapping *share(struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;

	OK(gpuwm_publish_commit_attached(begin(d, client), &mapping));
	return mapping;
}

/* What a restart will find: nobody else waits for that. */
static struct gpuwm_mapping *share_kept(struct gpuwmd *d, struct gpuwm_client *client)
{
	const size_t before = fds_of(d->keeper);
	struct gpuwm_mapping *mapping = share(d, client);

	cr_assert(EVENTUALLY(SOON_MS, fds_of(d->keeper) >= before + 2));
	return mapping;
}

/* What nobody has a lease of is freed. */
static void expect_gone(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0));
}

static const char *id_of(const struct gpuwm_mapping *mapping)
{
	return gpuwm_mapping_version(mapping)->id;
}

static size_t listed(struct gpuwmd *d, const char *model)
{
	json_t *list = query(d->admin, "list", model);
	size_t count = json_array_size(json_object_get(list, "versions"));

	json_decref(list);
	return count;
}

GPUWMD_TEST(nameless, its_makers_lease_keeps_it_and_nobody_else_need_know)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	const uint64_t seq = status_of(d, "seq");
	char model[32];

	snprintf(model, sizeof(model), "~%u", (unsigned)getuid());
	cr_expect_str_eq(gpuwm_mapping_version(mapping)->model, model);
	cr_expect_str_eq(gpuwm_mapping_version(mapping)->tag, id_of(mapping));
	cr_expect(mapping_holds(mapping, 1));
	cr_expect_eq(status_of(d, "nameless"), 1);
	cr_expect_eq(status_of(d, "versions"), 0);
	cr_expect_eq(status_of(d, "aliases"), 0);
	cr_expect_eq(status_of(d, "leases"), 1);
	cr_expect_eq(listed(d, NULL), 0);
	cr_expect_eq(listed(d, model), 1);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0 && memory_of(d) == 0));
	cr_expect_eq(status_of(d, "seq"), seq, "no event tells of it");
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, the_last_lease_of_any_process_frees_it)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	struct process worker = worker_start(d, id_of(mapping), 1);

	gpuwm_close(client);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1));
	cr_expect_eq(status_of(d, "nameless"), 1);
	process_kill(&worker, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0 && memory_of(d) == 0));
}

GPUWMD_TEST(nameless, who_comes_too_late_hears_that_it_is_gone)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client), *late;
	char id[33];

	snprintf(id, sizeof(id), "%s", id_of(mapping));
	OK(gpuwm_detach(mapping));
	FAILS(gpuwm_attach(client, id, NULL, &late), ENOENT);
	expect_gone(d);
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, a_commit_without_a_mapping_is_refused)
{
	struct gpuwm_client *client = client_new();

	FAILS(gpuwm_publish_commit(begin(d, client), NULL), EINVAL);
	cr_expect(strstr(gpuwm_error()->detail, "commit it and stay attached"));
	expect_gone(d);
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, an_operator_may_pin_and_retire_it)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client), *late;
	char id[33];

	snprintf(id, sizeof(id), "%s", id_of(mapping));
	OK(gpuwm_pin(d->admin, id, "look"));
	OK(gpuwm_detach(mapping));
	cr_expect_eq(status_of(d, "nameless"), 1);
	OK(gpuwm_retire(d->admin, id, 0));
	FAILS(gpuwm_attach(client, id, NULL, &late), ENOENT);
	OK(gpuwm_unpin(d->admin, id, "look"));
	expect_gone(d);
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, gpuwmctl_says_whether_it_is_freed)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	char id[33];

	snprintf(id, sizeof(id), "%s", id_of(mapping));
	CTL_IS(0, "retire", id);
	SAYS("is retiring: it is freed when its last lease and pin are gone");
	CTL_IS(0, "-o", "json", "retire", id);
	SAYS("\"state\":\"retiring\"");
	SAYS(id);
	CTL_IS(0, "retire", id, "--force", "--wait");
	SAYS("is freed");
	cr_expect_eq(status_of(d, "nameless"), 0);
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

/* It would be freed, and the alias would name it still. */
GPUWMD_TEST(nameless, nobody_can_give_it_an_alias)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	int sock = raw_client(getenv("GPUWM_SOCKET"));

	cr_expect_eq(RAW_ASK(sock, "hot_swap", TEXT("model", gpuwm_mapping_version(mapping)->model),
			     TEXT("to", id_of(mapping))),
		     -EINVAL);
	cr_expect_eq(status_of(d, "aliases"), 0);
	close(sock);
	OK(gpuwm_detach(mapping));
	expect_gone(d);
	gpuwm_close(client);
}

/* ---- memory that gpuwmd gives, to a publisher without the library ---- */

#define GIVEN_BYTES 4096

struct given {
	int sock, segment, index;
	uint8_t publish[16];
};

static void clear(struct given *g)
{
	close(g->segment);
	close(g->index);
	close(g->sock);
}

static struct given give(struct gpuwmd *d)
{
	static struct raw_reply reply;
	struct given g = {.sock = raw_client(getenv("GPUWM_SOCKET"))};
	struct fields f;

	(void)d;
	RAW_SEND(g.sock, 2, "publish_begin", TEXT("device", "host"), NUMBER("bytes", GIVEN_BYTES),
		 FLAG("give", true));
	cr_assert(raw_receive(g.sock, &reply));
	cr_assert_eq(reply.message.error.code, 0, "%s", reply.message.error.message);
	fields_of(&f, reply.message.body);
	fields_hex128(&f, "publish", g.publish);
	cr_assert_eq(packet_take_fd(&reply.packet, fields_u64(&f, "segment"), &g.segment), 0);
	cr_assert_eq(packet_take_fd(&reply.packet, fields_u64(&f, "index"), &g.index), 0);
	raw_reply_clear(&reply);
	return g;
}

static void fill(int fd, uint64_t bytes, int seals)
{
	cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
}

#define ALL_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* The code of the commit. */
static int commit(const struct given *g, bool says_tensors)
{
	static const uint8_t digest[16] = {1};
	struct message_writer w;

	raw_request(&w, 3, "publish_commit");
	message_put_hex128(&w, "publish", g->publish);
	message_put_text(&w, "device", "host");
	message_put_hex128(&w, "content", digest);
	message_put_hex128(&w, "layout", digest);
	if (says_tensors)
		message_put_u64(&w, "tensors", 1);
	raw_send(g->sock, &w);
	return raw_code(g->sock);
}

static void expect_refused(struct gpuwmd *d, struct given *g)
{
	cr_expect_eq(commit(g, true), -EBADMSG);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0 && memory_of(d) == 0));
	clear(g);
}

GPUWMD_TEST(nameless, given_memory_that_can_change_is_refused)
{
	struct given g = give(d);

	fill(g.segment, GIVEN_BYTES, ALL_SEALS & ~F_SEAL_WRITE);
	fill(g.index, 100, ALL_SEALS);
	expect_refused(d, &g);
	g = give(d);
	fill(g.segment, GIVEN_BYTES, ALL_SEALS);
	expect_refused(d, &g);
}

GPUWMD_TEST(nameless, given_memory_of_another_size_is_refused)
{
	struct given g = give(d);

	fill(g.segment, GIVEN_BYTES + 1, ALL_SEALS);
	fill(g.index, 100, ALL_SEALS);
	expect_refused(d, &g);
	g = give(d);
	fill(g.segment, 0, ALL_SEALS);
	fill(g.index, 100, ALL_SEALS);
	expect_refused(d, &g);
}

GPUWMD_TEST(nameless, a_commit_of_given_memory_says_what_the_index_has)
{
	struct given g = give(d);

	fill(g.segment, GIVEN_BYTES, ALL_SEALS);
	fill(g.index, 100, ALL_SEALS);
	cr_expect_eq(commit(&g, false), -EINVAL);
	cr_expect_eq(commit(&g, true), 0, "the first one has done nothing");
	clear(&g);
	expect_gone(d);
}

/* Its process, this one, lives on, and could still write. */
GPUWMD_TEST_BY(nameless, a_publisher_that_leaves_leaves_nothing,
	       gpuwmd_start("--set", "limits.publish_silence_ms=300", NULL), gpuwmd_stop_empty)
{
	struct given g = give(d);

	cr_expect_eq(status_of(d, "nameless"), 1);
	clear(&g);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0 && device_number(d, "used") == 0));
}

/* gpuwmd has not read the index. Whoever maps it does not trust it. */
static void expect_distrusted(struct gpuwmd *d, struct given *g, const char *why)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	char model[32], id[33];
	json_t *list;

	cr_assert_eq(commit(g, true), 0);
	snprintf(model, sizeof(model), "~%u", (unsigned)getuid());
	list = query(d->admin, "list", model);
	snprintf(id, sizeof(id), "%s",
		 json_string_value(
			 json_object_get(json_array_get(json_object_get(list, "versions"), 0), "version")));
	json_decref(list);
	FAILS(gpuwm_attach(client, id, NULL, &mapping), EBADMSG);
	cr_expect(strstr(gpuwm_error()->message, why), "%s", gpuwm_error()->message);
	gpuwm_close(client);
	clear(g);
	expect_gone(d);
}

GPUWMD_TEST(nameless, an_index_that_nobody_checked_harms_nobody)
{
	struct given g = give(d);

	fill(g.segment, GIVEN_BYTES, ALL_SEALS);
	cr_assert_eq(ftruncate(g.index, 4096), 0);
	cr_assert_eq(pwrite(g.index, "GPUWMIDX", 8, 0), 8);
	cr_assert_eq(fcntl(g.index, F_ADD_SEALS, ALL_SEALS), 0);
	expect_distrusted(d, &g, "the index");
}

GPUWMD_TEST(nameless, nor_does_the_index_of_another_rank)
{
	struct given g = give(d);
	struct index_builder *builder = index_builder_new(1, 2);
	struct error error;
	uint64_t bytes;

	fill(g.segment, GIVEN_BYTES, ALL_SEALS);
	index_builder_segment(builder, GIVEN_BYTES);
	cr_assert_eq(index_builder_finish_in(builder, g.index, &bytes, &error), 0, "%s", error.message);
	index_builder_free(builder);
	expect_distrusted(d, &g, "is of rank 1 of 2, not of 0 of 1");
}

GPUWMD_TEST(nameless, memory_is_given_to_small_ones_without_a_name_on_host)
{
	int sock = raw_client(getenv("GPUWM_SOCKET"));

	cr_expect_eq(RAW_ASK(sock, "publish_begin", TEXT("name", "m@v1"), TEXT("device", "host"),
			     NUMBER("bytes", GIVEN_BYTES), FLAG("give", true)),
		     -EINVAL);
	cr_expect_eq(
		RAW_ASK(sock, "publish_begin", TEXT("device", "host"), NUMBER("bytes", 0), FLAG("give", true)),
		-EINVAL);
	cr_expect_eq(RAW_ASK(sock, "publish_begin", TEXT("device", "host"),
			     NUMBER("bytes", GIVEN_BYTES_MAX + 1), FLAG("give", true)),
		     -EINVAL);
	if (backend() != BACKEND_HOST)
		cr_expect_eq(RAW_ASK(sock, "publish_begin", TEXT("device", d->device),
				     NUMBER("bytes", GIVEN_BYTES), FLAG("give", true)),
			     -EINVAL);
	close(sock);
}

GPUWMD_TEST_BY(nameless, those_of_a_user_are_bounded,
	       gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_LONG
						      "nameless_per_uid = 1\nversions_per_uid = 1\n"}),
	       gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share_kept(d, client);
	struct gpuwm_publish *more;

	FAILS(publish_begin(client, d->device, NULL, SMALL(1), &more), EDQUOT);
	cr_expect(strstr(gpuwm_error()->message, "all 1 versions without a name"));
	cr_expect(strstr(gpuwm_error()->detail, "nameless_per_uid"));
	OK(publish_version(client, d->device, "m@v1", SMALL(1)));
	kept_kill(d, SIGKILL);
	cr_expect_eq(status_of(d, "nameless"), 1);
	FAILS(publish_begin(client, d->device, NULL, SMALL(1), &more), EDQUOT);
	OK(gpuwm_detach(mapping));
	expect_gone(d);
	gpuwm_close(client);
	DROP(d, "m@v1");
}

static void share_again_and_again(struct gpuwmd *d)
{
	struct gpuwm_client *client = client_new();

	for (int i = 0; i < 100; i++)
		OK(gpuwm_detach(share(d, client)));
	expect_gone(d);
	gpuwm_close(client);
}

GPUWMD_TEST_BY(nameless, at_the_limit_the_end_of_one_makes_room_for_another,
	       gpuwmd_start("--set", "limits.nameless_per_uid=1", NULL), gpuwmd_stop_empty)
{
	share_again_and_again(d);
}

GPUWMD_TEST_BY(nameless, also_while_it_is_on_its_way_into_the_store,
	       gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_LONG "nameless_per_uid = 1\n"}),
	       gpuwmd_stop_empty)
{
	share_again_and_again(d);
}

GPUWMD_TEST(nameless, a_verify_of_it_can_be_waited_for)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	OK(gpuwm_verify(d->admin, id_of(mapping), NULL, jobs, &count));
	cr_assert_eq(count, 1);
	OK(gpuwm_job_wait(d->admin, jobs[0], LOAD_MS));
	OK(gpuwm_job_wait(d->admin, jobs[0], 0)); /* it is kept, as any job is that somebody asked for */
	OK(gpuwm_detach(mapping));
	expect_gone(d);
	gpuwm_close(client);
}

/* ---- restarts ---- */

static struct gpuwmd *long_kept(void)
{
	return gpuwmd_start_kept(KEPT_LONG);
}

GPUWMD_TEST_BY(nameless, a_restart_keeps_what_somebody_has, long_kept(), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share_kept(d, client);

	kept_kill(d, SIGKILL);
	cr_expect_eq(status_of(d, "nameless"), 1);
	worker_reads(d, id_of(mapping), 1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	cr_expect_eq(status_of(d, "nameless"), 1);
	cr_expect_eq(gpuwm_mapping_check(mapping), 0);
	OK(gpuwm_detach(mapping));
	expect_gone(d);
	gpuwm_close(client);
}

GPUWMD_TEST_BY(nameless, a_restart_frees_what_nobody_takes_again, long_kept(), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share_kept(d, client);
	struct process worker = worker_start(d, id_of(mapping), 1);

	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	cr_assert_eq(kill(worker.pid, SIGSTOP), 0);
	kept_kill(d, SIGKILL);
	process_kill(&worker, SIGKILL);
	cr_expect_eq(status_of(d, "nameless"), 1);
	expect_gone(d);
}

/* gpuwmd is told of a larger store than there is. It learns that the store was full when the version is ready already. */
GPUWMD_TEST_BY(nameless, what_the_store_did_not_take_is_lost_by_a_restart_and_says_so,
	       gpuwmd_start_kept(&(const struct kept){
		       .limits = LIMITS_SHORT, .store_max = "4", .fdstore = "100"}),
	       gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client), *late;
	char id[33];

	snprintf(id, sizeof(id), "%s", id_of(mapping));
	worker_reads(d, id, 1);
	cr_assert(EVENTUALLY(SOON_MS, log_count(d, "a restart would lose ~") == 1));
	kept_kill(d, SIGKILL);
	FAILS(gpuwm_attach(client, id, NULL, &late), ENOENT);
	cr_expect(strstr(gpuwm_error()->message, "was lost"), "%s", gpuwm_error()->message);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}
