#include "daemon.h"

#include <fcntl.h>

int gpuwmd = -1;
pthread_t thread;
int loader_end, loader_result;
struct roots_service roots;
static int fds_before;
bool dry_run;
const char *share_with;
int kept = -1;

/* What came last from the peer that was listened to. */
static uint8_t buffer[PACKET_BYTES_MAX + 1];
struct packet packet = {.data = buffer};
struct message message;

static void *loader(void *unused)
{
	(void)unused;
	loader_result = standby_run(loader_end, &roots);
	return NULL;
}

void forget(void)
{
	message_clear(&message);
	packet_drop(&packet);
	memset(&message, 0, sizeof(message));
}

bool listen_to(int sock)
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

void expect(const char *method)
{
	do
		cr_assert(listen_to(gpuwmd), "the loader ended before %s", method);
	while (strcmp(message.method, "loader_progress") == 0);
	cr_assert_str_eq(message.method, method);
}

void say(int sock, struct message_writer *w, const int *fds, size_t count)
{
	message_end(w);
	cr_assert_eq(message_finish(w), 0);
	cr_assert_eq(packet_send(sock, w->buffer.data, w->buffer.size, fds, count), 0);
	message_writer_clear(w);
}

void answer_empty(void)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	say(gpuwmd, &w, NULL, 0);
}

void answer_begin(void)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	message_put_text(&w, "publish", ID);
	message_put_text(&w, "version", ID);
	say(gpuwmd, &w, NULL, 0);
}

void notify(const char *method)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, method);
	say(gpuwmd, &w, NULL, 0);
}

void start(void)
{
	int pair[2];

	folder_make();
	fds_before = fd_count();
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	gpuwmd = pair[0];
	loader_end = pair[1];
	cr_assert_eq(pthread_create(&thread, NULL, loader, NULL), 0);
	expect("loader_hello");
}

void hang_up(void)
{
	if (gpuwmd >= 0)
		close(gpuwmd);
	gpuwmd = -1;
}

void finish(void)
{
	forget();
	folder_remove();
}

void expect_end(int result)
{
	pthread_join(thread, NULL);
	hang_up();
	forget();
	if (kept >= 0)
		close(kept);
	cr_expect_eq(loader_result, result, "%d", loader_result);
	cr_expect_eq(fd_count(), fds_before, "descriptors are left open");
}

void expect_error(const char *code, const char *says)
{
	struct fields f, e;
	char text[TEXT_BYTES_MAX + 1];

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
}

void expect_done(const char *code, const char *says)
{
	expect("loader_done");
	expect_error(code, says);
	answer_empty();
	expect_end(0);
}

void send_load_to(const char *source, const char *root, const char *const *devices)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "load");
	message_put_text(&w, "source", source);
	message_put_text(&w, "model", "m");
	message_put_text(&w, "tag", "v1");
	if (dry_run)
		message_put_bool(&w, "dry_run", true);
	if (share_with)
		message_put_text(&w, "share_with", share_with);
	message_begin_array(&w, "devices");
	for (; *devices; devices++)
		message_put_text(&w, NULL, *devices);
	message_end(&w);
	if (root) {
		message_begin_array(&w, "roots");
		message_put_text(&w, NULL, root);
		message_end(&w);
	}
	say(gpuwmd, &w, NULL, 0);
}

void write_model(void)
{
	write_safetensors(
		in_folder("model.safetensors"),
		"{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[5,21]}}",
		21);
	write_bytes(in_folder("config.json"), "{}", 2);
}

void read_part(struct check_part *check, struct part *part)
{
	static char device[DEVICE_BYTES_MAX + 1];
	struct fields f, s;
	uint32_t count;
	const msgpack_object *array;

	fields_of(&f, message.body);
	*check = (struct check_part){.world = 1, .bytes_max = UINT64_MAX, .part = part, .device = device};
	fields_text(&f, "device", device, sizeof(device));
	part->index = (struct part_fd){packet.fds[fields_u64(&f, "index")], fields_u64(&f, "index_bytes")};
	array = fields_array(&f, "segments", &count);
	part->segment_count = count;
	for (uint32_t i = 0; i < count; i++) {
		fields_of(&s, &array[i]);
		part->segments[i] = (struct part_fd){packet.fds[fields_u64(&s, "fd")], fields_u64(&s, "bytes")};
	}
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
}

int keep_fd(int fd)
{
	fds_before++;
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int send_check(const char *device, uint64_t bytes, bool keep)
{
	struct message_writer w;
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "check");
	message_put_text(&w, "publish", ID);
	message_put_u64(&w, "rank", 0);
	message_put_u64(&w, "world", 1);
	message_put_text(&w, "device", device);
	message_put_u64(&w, "bytes", bytes);
	message_put_u64(&w, "publisher", 0);
	if (keep)
		message_put_bool(&w, "keep", true);
	say(gpuwmd, &w, &pair[1], 1);
	close(pair[1]);
	return pair[0];
}
