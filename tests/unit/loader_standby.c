/* A loader in a thread, and the test as its daemon and its publisher. */
#include "../../loader/standby.h"

#include "../../loader/check.h"
#include "../../proto/index.h"
#include "../../proto/message.h"
#include "../../proto/methods.h"
#include "../../proto/packet.h"
#include "loader_files.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define ID "0123456789abcdef0123456789abcdef"

static int gpuwmd = -1; /* the daemon's end */
static pthread_t thread;
static int loader_end, loader_result;
static int fds_before;
static int kept = -1; /* a publisher's socket that stays open to the end */

/* What came last from the peer that was listened to. */
static uint8_t buffer[PACKET_BYTES_MAX + 1];
static struct packet packet = {.data = buffer};
static struct message message;

static void *loader(void *unused)
{
	(void)unused;
	loader_result = standby_run(loader_end);
	return NULL;
}

static void forget(void)
{
	message_clear(&message);
	packet_drop(&packet);
	memset(&message, 0, sizeof(message));
}

/* The next packet of sock. False at its end. */
static bool listen_to(int sock)
{
	struct pollfd wait = {.fd = sock, .events = POLLIN};
	const char *why = "";
	int r;

	forget();
	cr_assert_eq(poll(&wait, 1, 20000), 1, "nothing comes");
	r = packet_receive(sock, true, &packet);
	if (r == 0)
		return false;
	cr_assert_eq(r, 1);
	cr_assert_eq(message_read(packet.data, packet.bytes, &message, &why), 0, "%s", why);
	return true;
}

/* The next message of the loader besides progress must be `method`. */
static void expect(const char *method)
{
	do
		cr_assert(listen_to(gpuwmd), "the loader ended before %s", method);
	while (strcmp(message.method, METHOD_LOADER_PROGRESS) == 0);
	cr_assert_str_eq(message.method, method);
}

static void say(int sock, struct message_writer *w, const int *fds, size_t count)
{
	message_end(w);
	cr_assert_eq(message_finish(w), 0);
	cr_assert_eq(packet_send(sock, w->buffer.data, w->buffer.size, fds, count), 0);
	message_writer_clear(w);
}

static void answer_empty(void)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	say(gpuwmd, &w, NULL, 0);
}

static void answer_begin(void)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	message_put_text(&w, "publish", ID);
	message_put_text(&w, "version", ID);
	say(gpuwmd, &w, NULL, 0);
}

static void notify(const char *method)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, method);
	say(gpuwmd, &w, NULL, 0);
}

static void start(void)
{
	int pair[2];

	folder_make();
	fds_before = fds_open();
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	gpuwmd = pair[0];
	loader_end = pair[1];
	cr_assert_eq(pthread_create(&thread, NULL, loader, NULL), 0);
	expect(METHOD_LOADER_HELLO);
}

static void hang_up(void)
{
	if (gpuwmd >= 0)
		close(gpuwmd);
	gpuwmd = -1;
}

static void finish(void)
{
	forget();
	folder_remove();
}

/* The loader has ended with `result`, and nothing of it is left. */
static void expect_end(int result)
{
	pthread_join(thread, NULL);
	hang_up();
	forget();
	if (kept >= 0)
		close(kept);
	cr_expect_eq(loader_result, result, "%d", loader_result);
	cr_expect_eq(fds_open(), fds_before, "descriptors are left open");
}

/* loader_done with that error ("" for none), answered. */
static void expect_done(const char *code, const char *says)
{
	struct fields f, e;
	char text[TEXT_BYTES_MAX + 1];

	expect(METHOD_LOADER_DONE);
	fields_of(&f, message.body);
	if (*code) {
		fields_of(&e, fields_map(&f, "error"));
		fields_text(&e, "code", text, sizeof(text));
		cr_expect_str_eq(text, code);
		fields_text(&e, "message", text, sizeof(text));
		cr_expect(strstr(text, says), "\"%s\" does not say \"%s\"", text, says);
	} else {
		cr_expect_not(fields_have(&f, "error"));
	}
	answer_empty();
	expect_end(0);
}

TestSuite(standby, .init = start, .fini = finish, .timeout = 60);

static void send_load(const char *source, const char *root)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_LOADER_JOB);
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "load");
	message_put_text(&w, "source", source);
	message_put_text(&w, "model", "m");
	message_put_text(&w, "tag", "v1");
	message_begin_array(&w, "devices");
	message_put_text(&w, NULL, "host");
	message_end(&w);
	message_begin_array(&w, "roots");
	message_put_text(&w, NULL, root);
	message_end(&w);
	say(gpuwmd, &w, NULL, 0);
}

static void write_model(void)
{
	write_safetensors(
		in_folder("model.safetensors"),
		"{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[5,21]}}",
		21);
	write_bytes(in_folder("config.json"), "{}", 2);
}

/* The part of a loader_checked; its descriptors are the packet's. */
static void read_part(struct check_part *part, struct check_segment *segments)
{
	struct fields f, s;
	uint32_t count;
	const msgpack_object *array;

	fields_of(&f, message.body);
	*part = (struct check_part){
		.device = "host", .world = 1, .bytes_max = UINT64_MAX, .segments = segments};
	part->index_fd = packet.fds[fields_u64(&f, "index")];
	part->index_bytes = fields_u64(&f, "index_bytes");
	array = fields_array(&f, "segments", &count);
	part->segment_count = count;
	for (uint32_t i = 0; i < count; i++) {
		fields_of(&s, &array[i]);
		segments[i].fd = packet.fds[fields_u64(&s, "fd")];
		segments[i].bytes = fields_u64(&s, "bytes");
	}
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
}

static void expect_model(const struct check_part *part)
{
	struct index_map index;
	struct error error;
	uint32_t size;

	cr_assert_eq(index_map_open(part->index_fd, part->index_bytes, false, &index, &error), 0, "%s",
		     error.message);
	cr_expect_eq(index.view.header->tensor_count, 2);
	cr_expect_geq(index_find(&index.view, "b"), 0);
	cr_expect_str_eq(index_metadata(&index.view, "format"), "pt");
	cr_expect_not_null(index_file(&index.view, "config.json", &size));
	index_map_close(&index);
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
		notify(NOTIFY_LOADER_REPORT);
		expect(METHOD_LOADER_DEVICES);
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
	struct check_segment segments[PART_SEGMENTS_MAX];
	struct check_result result;
	struct check_part part;
	struct error error;

	write_model();
	answer_empty();
	send_load(folder, folder);
	expect(METHOD_PUBLISH_BEGIN);
	answer_begin();
	expect(METHOD_LOADER_CHECKED);
	read_part(&part, segments);
	cr_expect_eq(check_part(&part, NULL, NULL, &result, &error), 0, "%s", error.message);
	expect_model(&part);
	answer_empty();
	expect_done("", "");
}

Test(standby, tells_phases_and_bytes)
{
	char phase[64] = "", all[512] = "";
	struct fields f;

	write_model();
	answer_empty();
	send_load(folder, folder);
	while (strcmp(phase, "handing in") != 0) {
		cr_assert(listen_to(gpuwmd));
		if (strcmp(message.method, METHOD_PUBLISH_BEGIN) == 0)
			answer_begin();
		if (strcmp(message.method, METHOD_LOADER_PROGRESS) != 0)
			continue;
		fields_of(&f, message.body);
		fields_text(&f, "phase", phase, sizeof(phase));
		cr_expect_leq(fields_u64(&f, "done"), 21);
		if (strcmp(phase, "copying") == 0)
			cr_expect_eq(fields_u64(&f, "total"), 21);
		cr_assert_lt(strlen(all) + strlen(phase) + 2, sizeof(all));
		strcat(strcat(all, phase), ",");
	}
	cr_expect_str_eq(all, "opening,planning,allocating,copying,checking,handing in,");
	expect(METHOD_LOADER_CHECKED);
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

Test(standby, cancels_a_load)
{
	write_model();
	answer_empty();
	send_load(folder, folder);
	expect(METHOD_PUBLISH_BEGIN);
	notify(NOTIFY_LOADER_CANCEL);
	answer_begin();
	expect_done("ECANCELED", "cancelled while allocating");
}

Test(standby, fails_when_gpuwmd_goes_in_a_load)
{
	write_model();
	answer_empty();
	send_load(folder, folder);
	expect(METHOD_PUBLISH_BEGIN);
	hang_up();
	expect_end(-ECONNRESET);
}

Test(standby, tells_what_is_wrong_with_a_job)
{
	struct message_writer w;

	answer_empty();
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_LOADER_JOB);
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "dance");
	say(gpuwmd, &w, NULL, 0);
	expect_done("EINVAL", "dance");
}

/* A check of rank 0 of 1 with 4096 bytes; returns the publisher's socket. */
static int send_check(void)
{
	struct message_writer w;
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_LOADER_JOB);
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "check");
	message_put_text(&w, "publish", ID);
	message_put_u64(&w, "rank", 0);
	message_put_u64(&w, "world", 1);
	message_put_text(&w, "device", "host");
	message_put_u64(&w, "bytes", 4096);
	message_put_u64(&w, "publisher", 0);
	say(gpuwmd, &w, &pair[1], 1);
	close(pair[1]);
	return pair[0];
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
	publisher = send_check();
	hand_in(publisher, METHOD_HAND_IN, 0, true);
	expect_answer(publisher, "");
	expect(METHOD_LOADER_CHECKED);
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
	publisher = send_check();
	hand_in(publisher, METHOD_HAND_IN, 0, false);
	expect_answer(publisher, "");
	expect_done("EBADMSG", "tensor \"t\"");
}

Test(standby, refuses_a_wrong_size)
{
	int publisher;

	answer_empty();
	publisher = send_check();
	hand_in(publisher, METHOD_HAND_IN, 4096, true);
	expect_answer(publisher, "");
	expect_done("EBADMSG", "segment 0: the index says 4096 bytes, hand_in says 8192");
}

Test(standby, refuses_other_methods_of_a_publisher)
{
	int publisher;

	answer_empty();
	publisher = send_check();
	hand_in(publisher, "hand_out", 0, true);
	expect_answer(publisher, "ENOSYS");
	expect_done("ENOSYS", "hand_out");
}

Test(standby, refuses_what_is_no_message)
{
	int publisher;

	answer_empty();
	publisher = send_check();
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
	publisher = send_check();
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, 7, METHOD_HAND_IN);
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", 200);
	message_begin_array(&w, "segments");
	message_end(&w);
	say(publisher, &w, NULL, 0);
	expect_answer(publisher, "EBADMSG");
	expect_done("EBADMSG", "index: its descriptor did not come along");
}

Test(standby, ends_a_check_whose_publisher_went_away)
{
	answer_empty();
	close(send_check());
	expect_done("ECANCELED", "the publisher went away");
}

Test(standby, cancels_a_check_that_waits)
{
	answer_empty();
	kept = send_check();
	notify(NOTIFY_LOADER_CANCEL);
	expect_done("ECANCELED", "cancelled while waiting for the publisher");
}

Test(standby, fails_when_gpuwmd_goes_while_it_waits)
{
	answer_empty();
	kept = send_check();
	do
		cr_assert(listen_to(gpuwmd));
	while (strcmp(message.method, METHOD_LOADER_PROGRESS) != 0);
	hang_up();
	expect_end(-ECONNRESET);
}
