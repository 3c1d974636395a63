/* What gpuwmd makes of a load that shares: the parts that it gives to the loader, and the pairs that the loader names. */
#include "daemon/work/jobs/job_load.h"
#include "daemon/work/versions/sharing.h"
#include "tests/support/daemon/service.h"

TestSuite(share_with, .init = open_service, .fini = close_service, .timeout = 60);

static int loader;
static struct version *resident;

/* m@v0 with two segments, made by an operator. */
static void make_resident(void)
{
	resident = ready_with("m", "v0", 2);
	resident->by_operator = true;
}

/* A load of m@v1 that shares with m@v0, begun by its loader. */
static struct job *begin_load(void)
{
	struct message_writer w;
	struct job *job;

	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	make_resident();
	loader = standby_with(-1);
	job = new_job();
	cr_assert(comes(loader));
	sharing_begin(load_job_of(job), resident); /* the request does so before a loader has the job */
	begin_request(&w, 2, "publish_begin");
	message_put_text(&w, "name", "m@v1");
	message_put_text(&w, "device", DEVICE_HOST);
	message_put_u64(&w, "bytes", 8192);
	send_request(loader, &w);
	cr_assert_eq(answered(loader), 0, "%s", message.error.message);
	return job;
}

static void end(struct job *job)
{
	if (!job_ended(job))
		job_end(&server->work, job, NULL);
	close(loader);
}

static struct version *loaded(const struct job *job)
{
	const struct ref ref = {.has_id = true, .id = job->version};
	struct version *version = NULL;
	uint64_t generation;

	registry_find(server->ledger.registry, &ref, &version, &generation, NULL);
	return version;
}

struct pair {
	uint64_t to, from;
};

static void put_pairs(struct message_writer *w, const struct pair *pairs, size_t count)
{
	message_begin_array(w, "shared");
	for (size_t i = 0; i < count; i++) {
		message_begin_map(w, NULL);
		message_put_u64(w, "segment", pairs[i].to);
		message_put_u64(w, "resident", pairs[i].from);
		message_end(w);
	}
	message_end(w);
}

/* Two segments of `bytes` each, with these pairs. The answer's code. */
static int hand_in(const struct job *job, uint64_t bytes, const struct pair *pairs, size_t count)
{
	static const uint8_t digest[16];
	struct part part = {.index = {memfd_create("index", MFD_CLOEXEC), 100}, .segment_count = 2};
	struct message_writer w;
	int fds[PACKET_FDS_MAX];
	size_t fd_count;

	for (uint32_t i = 0; i < 2; i++)
		part.segments[i] = (struct part_fd){memfd_create("segment", MFD_CLOEXEC), bytes};
	begin_request(&w, 3, "loader_checked");
	message_put_hex128(&w, "publish", loaded(job)->publish.bytes);
	message_put_text(&w, "device", DEVICE_HOST);
	message_put_u64(&w, "rank", 0);
	message_put_u64(&w, "tensors", 1);
	message_put_hex128(&w, "content", digest);
	message_put_hex128(&w, "layout", digest);
	fd_count = part_write(&w, &part, fds);
	put_pairs(&w, pairs, count);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(loader, w.buffer.data, w.buffer.size, fds, fd_count), 0);
	message_writer_clear(&w);
	part_close(&part);
	return answered(loader);
}

static struct segment *segment_of(const struct version *version, uint32_t position)
{
	return version->replicas[0].segments[position].segment;
}

static void retire(struct version *version)
{
	struct error error;

	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, version, &error), 0, "%s", error.message);
}

/* ---- the resident part ---- */

static int ask_resident(uint64_t rank, const char *device)
{
	struct message_writer w;

	begin_request(&w, 4, "loader_resident");
	message_put_u64(&w, "rank", rank);
	message_put_text(&w, "device", device);
	send_request(loader, &w);
	return answered(loader);
}

Test(share_with, gives_the_resident_part_to_the_loader)
{
	struct job *job = begin_load();
	struct fields f;
	struct part part;

	cr_assert_eq(ask_resident(0, DEVICE_HOST), 0, "%s", message.error.message);
	fields_of(&f, message.body);
	cr_assert_eq(part_read(&f, &packet, &part), 0, "%s", f.error.message);
	cr_expect_eq(part.index.bytes, 100);
	cr_expect_eq(part.segment_count, 2);
	cr_expect_eq(part.segments[1].bytes, 2048);
	part_close(&part);
	cr_expect_eq(ask_resident(1, DEVICE_HOST), -ENODEV);
	cr_expect_str_eq(message.error.message, "rank 1 of m@v0 is not on host");
	cr_expect_eq(ask_resident(0, "GPU-1"), -ENODEV);
	sharing_end(&server->work, load_job_of(job));
	cr_expect_eq(ask_resident(0, DEVICE_HOST), -EINVAL);
	cr_expect(strstr(message.error.message, "shares no version"), "%s", message.error.message);
	end(job);
}

/* Packets of one byte, until the socket takes no more. Returns how many. */
static unsigned fill(int sock)
{
	unsigned count = 0;

	while (send(sock, "", 1, MSG_DONTWAIT) == 1)
		count++;
	return count;
}

static void empty(int sock, unsigned count)
{
	char byte;

	while (count-- > 0)
		cr_assert_eq(recv(sock, &byte, 1, 0), 1);
}

/* The answer waits to be sent when the version is gone. */
Test(share_with, sends_the_resident_part_as_it_was)
{
	struct job *job = begin_load();
	struct message_writer w;
	struct stat was, is;
	struct fields f;
	struct part part;
	unsigned before;

	cr_assert_eq(fstat(segment_of(resident, 0)->fd, &was), 0);
	before = fill(loader_of(server->work.loaders, job)->session->sock);
	begin_request(&w, 4, "loader_resident");
	message_put_u64(&w, "rank", 0);
	message_put_text(&w, "device", DEVICE_HOST);
	send_request(loader, &w);
	TURN_UNTIL(loader_of(server->work.loaders, job)->session->out);
	retire(resident);
	sharing_end(&server->work, load_job_of(job));
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 1);
	empty(loader, before);
	cr_assert_eq(answered(loader), 0, "%s", message.error.message);
	fields_of(&f, message.body);
	cr_assert_eq(part_read(&f, &packet, &part), 0, "%s", f.error.message);
	cr_assert_eq(fstat(part.segments[0].fd, &is), 0);
	cr_expect_eq(is.st_ino, was.st_ino);
	part_close(&part);
	end(job);
}

/* ---- pairs ---- */

Test(share_with, lets_the_new_version_hold_what_the_loader_names)
{
	struct job *job = begin_load();
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	int fds;

	fds = fd_count();
	cr_assert_eq(hand_in(job, 2048, (const struct pair[]){{1, 0}}, 1), 0, "%s", message.error.message);
	cr_expect_eq(loaded(job)->state, VERSION_READY);
	cr_expect_eq(segment_of(loaded(job), 1), segment_of(resident, 0));
	cr_expect_neq(segment_of(loaded(job), 0), segment_of(resident, 1));
	cr_expect_eq(host->used - host->contexts, 3 * 2048);
	TURN_UNTIL(fd_count() == fds + 2); /* its index and its own segment */
	cr_expect_eq(resident->readers, 1);
	end(job);
	cr_expect_eq(resident->readers, 0);
}

/* The version fails, and the resident one is as it was. */
static void refused(const struct pair *pairs, size_t count, uint64_t bytes, const char *words)
{
	struct job *job = begin_load();

	cr_expect_eq(hand_in(job, bytes, pairs, count), -EBADMSG);
	cr_expect(strstr(message.error.message, words), "%s", message.error.message);
	cr_expect_eq(loaded(job)->state, VERSION_FAILED);
	cr_expect_eq(resident->state, VERSION_READY);
	cr_expect_not(segment_is_shared(segment_of(resident, 0)));
	end(job);
	TURN_UNTIL(segment_of(resident, 0)->uses == 1);
}

Test(share_with, refuses_a_segment_that_is_not_there)
{
	refused((const struct pair[]){{2, 0}}, 1, 2048,
		"segment 2 of 2 can't be segment 0 of the 2 that are resident");
}

Test(share_with, refuses_a_resident_segment_that_is_not_there)
{
	refused((const struct pair[]){{0, UINT64_MAX}}, 1, 2048,
		"can't be segment 18446744073709551615 of the 2");
}

Test(share_with, refuses_a_segment_twice)
{
	refused((const struct pair[]){{0, 0}, {0, 1}}, 2, 2048,
		"segment 0 or resident segment 1 is there twice");
}

Test(share_with, refuses_a_resident_segment_twice)
{
	refused((const struct pair[]){{0, 1}, {1, 1}}, 2, 2048,
		"segment 1 or resident segment 1 is there twice");
}

Test(share_with, refuses_a_segment_of_another_size)
{
	refused((const struct pair[]){{0, 1}}, 1, 2047,
		"segment 0 has 2047 bytes, the resident one in its place has 2048");
}

Test(share_with, refuses_more_pairs_than_a_part_has_segments)
{
	static const struct pair pairs[PART_SEGMENTS_MAX + 1];
	struct job *job = begin_load();

	cr_expect_eq(hand_in(job, 2048, pairs, PART_SEGMENTS_MAX + 1), -EINVAL);
	cr_expect(strstr(message.error.message, "shared"), "%s", message.error.message);
	end(job);
}

/* ---- damage ---- */

static void damage(struct error *ret)
{
	error_set(ret, -EBADMSG, NULL, "tensor \"t\" differs");
}

Test(share_with, refuses_a_version_that_was_found_to_be_damaged_meanwhile)
{
	struct job *job = begin_load();
	struct error found;

	damage(&found);
	versions_taint(&server->work, resident, &resident->replicas[0], &found);
	cr_expect_eq(hand_in(job, 2048, (const struct pair[]){{1, 0}}, 1), -EBADMSG);
	cr_expect(strstr(message.error.message, "m@v0 is tainted"), "%s", message.error.message);
	cr_expect_eq(loaded(job)->state, VERSION_FAILED);
	end(job);
}

/* gpuwmd has read its configuration again since the request. */
Test(share_with, refuses_a_model_that_has_other_rules_meanwhile)
{
	struct job *job = begin_load();

	snprintf(job->model, sizeof(job->model), "n");
	snprintf(rules_section(&config.rules, 1)->match, RULE_MATCH_BYTES_MAX, "n");
	cr_expect_eq(hand_in(job, 2048, (const struct pair[]){{1, 0}}, 1), -EACCES);
	cr_expect(strstr(message.error.message, "m has other rules than n"), "%s", message.error.message);
	cr_expect_eq(loaded(job)->state, VERSION_FAILED);
	end(job);
	rules_clear(&config.rules);
}

Test(share_with, taints_who_holds_the_segment)
{
	struct job *job = begin_load();
	struct error found;

	cr_assert_eq(hand_in(job, 2048, (const struct pair[]){{1, 0}}, 1), 0);
	damage(&found);
	sharing_taint(&server->work, resident, &resident->replicas[0], 0, &found);
	cr_assert(loaded(job)->tainted);
	cr_expect(strstr(loaded(job)->tainted->message, "segment 0, which it shares with m@v0, is damaged"),
		  "%s", loaded(job)->tainted->message);
	cr_expect_null(resident->tainted, "the verify's own version is its caller's");
	end(job);
}

/* 2^32 is not segment 0. */
Test(share_with, takes_a_number_that_no_segment_has_for_none)
{
	struct error damaged;
	struct message_writer w;
	struct job *job = begin_load();

	error_set(&damaged, -EBADMSG, NULL, "damaged");
	begin_request(&w, 5, "loader_done");
	message_put_error(&w, "error", &damaged);
	message_put_u64(&w, "segment", (uint64_t)1 << 32);
	send_request(loader, &w);
	cr_assert_eq(answered(loader), 0, "%s", message.error.message);
	cr_expect(job->found_segment);
	cr_expect_eq(job->damaged_segment, UINT32_MAX);
	end(job);
}

/* The loader compared it, it was damaged then, and the version was not ready yet. */
Test(share_with, fails_a_version_that_is_not_ready_with_its_segment)
{
	struct job *job = begin_load();

	segment_of(resident, 0)->damaged = true;
	cr_expect_eq(hand_in(job, 2048, (const struct pair[]){{1, 0}}, 1), -EBADMSG);
	cr_expect(strstr(message.error.message, "segment 1 of rank 0 on host, which it shares, is damaged"),
		  "%s", message.error.message);
	cr_expect_eq(loaded(job)->state, VERSION_FAILED);
	end(job);
}

/* ---- how long it holds the resident version ---- */

Test(share_with, frees_the_resident_version_when_the_job_has_ended)
{
	struct job *job = begin_load();

	retire(resident);
	turn();
	cr_expect_eq(resident->state, VERSION_RETIRING);
	cr_assert_eq(hand_in(job, 2048, (const struct pair[]){{1, 0}}, 1), 0, "%s", message.error.message);
	turn();
	cr_expect_eq(registry_counts(server->ledger.registry).versions, 2);
	end(job);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 1);
	cr_expect_eq(registry_counts(server->ledger.registry).segments, 2);
}

/* Its process may map the resident version until it is gone. */
Test(share_with, keeps_the_charge_for_a_loader_that_does_not_end)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct loader *l;
	struct job *job;

	make_resident();
	job = new_job();
	sharing_begin(load_job_of(job), resident);
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(-1);
	cr_assert(comes(loader));
	l = loader_of(server->work.loaders, job);
	cr_assert(l);
	cr_expect(version_id_equal(&l->reads, &resident->id));
	job_end(&server->work, job, NULL);
	retire(resident);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
	cr_expect_eq(host->used - host->contexts, 2 * 2048);
	close(loader);
	TURN_UNTIL(host->used == 0);
}
