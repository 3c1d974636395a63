/* The life of a loader, on host memory. */
#include "tests/support/loader/daemon.h"

#include "../../proto/index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

TestSuite(standby, .init = start, .fini = finish, .timeout = 120);

static void send_load(const char *source, const char *root)
{
	send_load_to(source, root, (const char *const[]){"host", NULL});
}

static void expect_model(const struct check_part *part)
{
	struct index_map index;
	struct error error;
	uint32_t size;

	cr_assert_eq(index_map_open(part->part->index.fd, part->part->index.bytes, false, &index, &error), 0,
		     "%s", error.message);
	cr_expect_eq(index.view.header->tensor_count, 2);
	cr_expect_geq(index_find(&index.view, "b"), 0);
	cr_expect_str_eq(index_metadata(&index.view, "format"), "pt");
	cr_expect_not_null(index_file(&index.view, "config.json", &size));
	index_map_close(&index);
}

static void expect_own_pidfd(int fd)
{
	char path[64], line[128];
	int pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "re");
	cr_assert(file);
	while (fgets(line, sizeof(line), file) && sscanf(line, "Pid: %d", &pid) != 1)
		;
	fclose(file);
	cr_expect_eq(pid, getpid(), "it is no pidfd, or another process's");
}

Test(standby, says_hello_with_its_devices)
{
	struct fields f, d;
	uint32_t count = 0;
	const msgpack_object *devices;
	char text[128];

	fields_of(&f, message.body);
	cr_expect_eq(fields_u64(&f, "protocol_min"), 1);
	cr_expect_eq(fields_u64(&f, "pid"), (uint64_t)getpid());
	devices = fields_array(&f, "devices", &count);
	cr_assert_geq(count, 1);
	fields_of(&d, &devices[0]);
	fields_text(&d, "device", text, sizeof(text));
	cr_expect_str_eq(text, "host");
	cr_expect_gt(fields_u64(&d, "total"), fields_u64(&d, "free"));
	cr_expect_eq(fields_u64(&d, "granularity"), (uint64_t)sysconf(_SC_PAGESIZE));
	cr_expect_eq(d.error.code, 0, "%s", d.error.message);
	cr_assert_eq(packet.fd_count, 1);
	cr_expect_eq(fields_u64(&f, "pidfd"), 0);
	cr_expect_eq(f.error.code, 0, "%s", f.error.message);
	expect_own_pidfd(packet.fds[0]);
	answer_empty();
	hang_up();
	expect_end(0);
}

Test(standby, ends_when_it_is_refused)
{
	struct error refusal = {.code = -EPROTONOSUPPORT, .message = "too old"};
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response_error(&w, &message.id, &refusal);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(gpuwmd, w.buffer.data, w.buffer.size, NULL, 0), 0);
	message_writer_clear(&w);
	expect_end(-EPROTONOSUPPORT);
}

Test(standby, reports_devices_when_asked)
{
	struct fields f;
	uint32_t count = 0;

	answer_empty();
	for (int i = 0; i < 2; i++) {
		notify("report");
		expect("loader_devices");
		cr_expect_eq(message.type, MESSAGE_NOTIFICATION);
		fields_of(&f, message.body);
		fields_array(&f, "devices", &count);
		cr_expect_geq(count, 1);
	}
	hang_up();
	expect_end(0);
}

Test(standby, loads_a_folder)
{
	struct part list;
	struct check_result result;
	struct check_part part;
	struct error error;

	write_model();
	answer_empty();
	send_load(folder, folder);
	expect("publish_begin");
	answer_begin();
	expect("loader_checked");
	read_part(&part, &list);
	cr_expect_eq(check_part(&part, NULL, NULL, &result, &error), 0, "%s", error.message);
	expect_model(&part);
	answer_empty();
	expect_done("", "");
}

Test(standby, tells_phases_and_bytes)
{
	char phase[64] = "", last[64] = "", all[512] = "";
	struct fields f;

	write_model();
	answer_empty();
	send_load(folder, folder);
	while (strcmp(phase, "handing in") != 0) {
		cr_assert(listen_to(gpuwmd));
		if (strcmp(message.method, "publish_begin") == 0)
			answer_begin();
		if (strcmp(message.method, "loader_progress") != 0)
			continue;
		fields_of(&f, message.body);
		fields_text(&f, "phase", phase, sizeof(phase));
		cr_expect_leq(fields_u64(&f, "done"), 21);
		if (strcmp(phase, "copying") == 0)
			cr_expect_eq(fields_u64(&f, "total"), 21);
		cr_assert_lt(strlen(all) + strlen(phase) + 2, sizeof(all));
		if (strcmp(phase, last) != 0) /* else it came again with a note */
			strcat(strcat(all, phase), ",");
		strcpy(last, phase);
	}
	cr_expect_str_eq(all, "opening,planning,allocating,copying,checking,handing in,");
	expect("loader_checked");
	answer_empty();
	expect_done("", "");
}

Test(standby, refuses_sources_outside_of_the_roots)
{
	write_model();
	answer_empty();
	send_load(folder, "/nowhere");
	expect_done("EACCES", "none of the configured roots");
}

Test(standby, loads_from_nowhere_without_roots)
{
	write_model();
	answer_empty();
	send_load(folder, NULL);
	expect_done("EACCES", "none of the configured roots");
}

/* A loader of a service obeys its own configuration, whatever gpuwmd says. */
static void configure(const char *text)
{
	write_bytes(in_folder("gpuwmd.conf"), text, strlen(text));
	roots = (struct roots_service){.own = true, .file = in_folder("gpuwmd.conf")};
}

Test(standby, roots_of_its_own_count_and_not_the_jobs)
{
	write_model();
	answer_empty();
	configure("[loader]\nroot = /nowhere\n");
	send_load(folder, folder);
	expect_done("EACCES", "none of the configured roots");
}

Test(standby, roots_of_its_own_suffice)
{
	char text[PATH_MAX];

	write_model();
	answer_empty();
	snprintf(text, sizeof(text), "[loader]\nroot = %s\n", folder);
	configure(text);
	send_load(folder, "/nowhere");
	expect("publish_begin");
	answer_begin();
	expect("loader_checked");
	answer_empty();
	expect_done("", "");
}

Test(standby, a_configuration_that_is_wrong_fails_the_load)
{
	write_model();
	answer_empty();
	configure("[loader]\nroot = nowhere\n");
	send_load(folder, folder);
	expect_done("EINVAL", "gpuwmd.conf:2: root = nowhere: is no absolute path");
}

Test(standby, without_a_configuration_it_loads_nothing)
{
	write_model();
	answer_empty();
	roots.own = true;
	send_load(folder, folder);
	expect_done("EACCES", "names no configuration");
}

Test(standby, cancels_a_load)
{
	write_model();
	answer_empty();
	send_load(folder, folder);
	expect("publish_begin");
	notify("cancel");
	answer_begin();
	expect_done("ECANCELED", "cancelled while allocating");
}

Test(standby, a_cancel_after_the_hand_over_ends_nothing)
{
	write_model();
	answer_empty();
	send_load(folder, folder);
	expect("publish_begin");
	answer_begin();
	expect("loader_checked");
	notify("cancel");
	answer_empty();
	expect_done("", "");
}

Test(standby, fails_when_gpuwmd_goes_in_a_load)
{
	write_model();
	answer_empty();
	send_load(folder, folder);
	expect("publish_begin");
	hang_up();
	expect_end(-ECONNRESET);
}

Test(standby, tells_what_is_wrong_with_a_job)
{
	struct message_writer w;

	answer_empty();
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "dance");
	say(gpuwmd, &w, NULL, 0);
	expect_done("EINVAL", "dance");
}

/* Hands in one segment of 4096 zeros with one tensor in it; `extra` is added to its size, the
 * digest is wrong unless right. */
static void hand_in(int publisher, const char *method, uint64_t extra, bool right)
{
	static const uint8_t zeros[4096];
	struct index_builder *b = index_builder_new(0, 1);
	uint64_t size = 4096, index_bytes;
	struct index_tensor_spec spec = {.name = "t", .dtype = DTYPE_U8, .ndim = 1, .shape = &size};
	struct digest digest = digest_of(zeros, right ? 4096 : 8);
	struct message_writer w;
	struct error error;
	int fds[2];

	index_builder_segment(b, size);
	cr_assert_eq(index_builder_tensor(b, &spec, &error), 0);
	index_builder_digest(b, 0, &digest);
	cr_assert_eq(index_builder_finish(b, &fds[0], &index_bytes, &error), 0, "%s", error.message);
	index_builder_free(b);
	fds[1] = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fds[1], 4096), 0);
	fcntl(fds[1], F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, 7, method);
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", index_bytes);
	message_begin_array(&w, "segments");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "fd", 1);
	message_put_u64(&w, "bytes", size + extra);
	message_end(&w);
	message_end(&w);
	say(publisher, &w, fds, 2);
	close(fds[0]);
	close(fds[1]);
}

static void expect_answer(int publisher, const char *code)
{
	cr_assert(listen_to(publisher));
	cr_expect_eq(message.type, MESSAGE_RESPONSE);
	cr_expect_eq(message.id, 7);
	cr_expect_str_eq(message.error.code ? error_name(message.error.code) : "", code);
	close(publisher);
}

Test(standby, checks_what_is_handed_in)
{
	struct fields f;
	char text[64];
	int publisher;

	answer_empty();
	publisher = send_check("host", 4096, false);
	hand_in(publisher, "hand_in", 0, true);
	expect_answer(publisher, "");
	expect("loader_checked");
	fields_of(&f, message.body);
	fields_text(&f, "publish", text, sizeof(text));
	cr_expect_str_eq(text, ID);
	cr_expect_eq(fields_u64(&f, "tensors"), 1);
	cr_expect_eq(packet.fd_count, 2);
	answer_empty();
	expect_done("", "");
}

Test(standby, refuses_a_wrong_digest)
{
	int publisher;

	answer_empty();
	publisher = send_check("host", 4096, false);
	hand_in(publisher, "hand_in", 0, false);
	expect_answer(publisher, "");
	expect_done("EBADMSG", "tensor \"t\"");
}

Test(standby, refuses_a_wrong_size)
{
	int publisher;

	answer_empty();
	publisher = send_check("host", 4096, false);
	hand_in(publisher, "hand_in", 4096, true);
	expect_answer(publisher, "");
	expect_done("EBADMSG", "segment 0: the index says 4096 bytes, hand_in says 8192");
}

Test(standby, refuses_other_methods_of_a_publisher)
{
	int publisher;

	answer_empty();
	publisher = send_check("host", 4096, false);
	hand_in(publisher, "hand_out", 0, true);
	expect_answer(publisher, "ENOSYS");
	expect_done("ENOSYS", "hand_out");
}

Test(standby, refuses_what_is_no_message)
{
	int publisher;

	answer_empty();
	publisher = send_check("host", 4096, false);
	cr_assert_eq(packet_send(publisher, "\xdd\xff\xff\xff\xff", 5, NULL, 0), 0);
	cr_assert(listen_to(publisher));
	cr_expect_eq(message.error.code, -EPROTO);
	close(publisher);
	expect_done("EPROTO", "no valid message");
}

Test(standby, refuses_a_hand_in_without_descriptors)
{
	struct message_writer w;
	int publisher;

	answer_empty();
	publisher = send_check("host", 4096, false);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, 7, "hand_in");
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", 200);
	message_begin_array(&w, "segments");
	message_end(&w);
	say(publisher, &w, NULL, 0);
	expect_answer(publisher, "EBADMSG");
	expect_done("EBADMSG", "the index came without its descriptor");
}

Test(standby, ends_a_check_whose_publisher_went_away)
{
	answer_empty();
	close(send_check("host", 4096, false));
	expect_done("ECANCELED", "the publisher went away");
}

Test(standby, cancels_a_check_that_waits)
{
	answer_empty();
	kept = send_check("host", 4096, false);
	notify("cancel");
	expect_done("ECANCELED", "cancelled while waiting for the publisher");
}

Test(standby, fails_when_gpuwmd_goes_while_it_waits)
{
	answer_empty();
	kept = send_check("host", 4096, false);
	do
		cr_assert(listen_to(gpuwmd));
	while (strcmp(message.method, "loader_progress") != 0);
	hang_up();
	expect_end(-ECONNRESET);
}

/* ---- roots ---- */

/* Asks the loader to judge these two roots; returns its judgement, an array of two. */
static const msgpack_object *judgement_of(const char *first, const char *second, uint32_t *ret_count)
{
	struct message_writer w;
	struct fields f;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "report");
	message_begin_array(&w, "devices");
	message_end(&w);
	message_begin_array(&w, "roots");
	message_put_text(&w, NULL, first);
	message_put_text(&w, NULL, second);
	message_end(&w);
	say(gpuwmd, &w, NULL, 0);
	do
		cr_assert(listen_to(gpuwmd));
	while (strcmp(message.method, "loader_roots") != 0); /* a thread tells it, beside loader_devices */
	fields_of(&f, message.body);
	return fields_array(&f, "roots", ret_count);
}

static void expect_root(const msgpack_object *judged, const char *root, const char *says)
{
	struct error error = {0};
	struct fields f;
	char text[256];

	fields_of(&f, judged);
	fields_text(&f, "root", text, sizeof(text));
	cr_expect_str_eq(text, root);
	fields_error(&f, "error", &error);
	cr_expect(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_expect_eq(error.code == 0, *says == '\0', "%s", error.message);
}

Test(standby, judges_the_roots_when_asked)
{
	const msgpack_object *judged;
	uint32_t count;

	answer_empty();
	for (int i = 0; i < 2; i++) {
		judged = judgement_of(folder, "/nowhere", &count);
		cr_assert_eq(count, 2);
		expect_root(&judged[0], folder, "");
		expect_root(&judged[1], "/nowhere", "the root /nowhere can't be used: No such file");
	}
	hang_up();
	expect_end(0);
}

/* As its loads do. */
Test(standby, judges_the_roots_of_its_own)
{
	const msgpack_object *judged;
	uint32_t count;

	answer_empty();
	configure("[loader]\nroot = /nowhere\n");
	judged = judgement_of(folder, folder, &count);
	cr_assert_eq(count, 1);
	expect_root(&judged[0], "/nowhere", "the root /nowhere can't be used");
	configure("[loader]\n");
	judged = judgement_of(folder, folder, &count);
	cr_assert_eq(count, 1);
	expect_root(&judged[0], "", "names no roots");
	hang_up();
	expect_end(0);
}
