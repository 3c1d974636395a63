#include "raw.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_MS 20000

static char refusal[2 * TEXT_BYTES_MAX + 8];

int raw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	cr_assert(sock >= 0);
	cr_assert(connect(sock, (struct sockaddr *)&address, sizeof address) == 0, "%s: %s", path,
		  strerror(errno));
	return sock;
}

void raw_request(struct message_writer *w, uint64_t id, const char *method)
{
	message_writer_init(w, PACKET_BYTES_MAX);
	message_request(w, id, method);
}

int raw_send_bytes(int sock, const void *data, size_t bytes, const int *fds, size_t fd_count)
{
	return packet_send(sock, data, bytes, fds, fd_count);
}

void raw_send_fds(int sock, struct message_writer *w, const int *fds, size_t fd_count)
{
	message_end(w);
	cr_assert_eq(message_finish(w), 0);
	cr_assert_eq(raw_send_bytes(sock, w->buffer.data, w->buffer.size, fds, fd_count), 0);
	message_writer_clear(w);
}

void raw_send(int sock, struct message_writer *w)
{
	raw_send_fds(sock, w, NULL, 0);
}

int raw_receive(int sock, struct raw_reply *ret)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	const char *why = "";
	int r;

	memset(&ret->message, 0, sizeof ret->message);
	ret->packet = (struct packet){.data = ret->data};
	cr_assert(poll(&ready, 1, REPLY_MS) == 1, "no answer");
	r = packet_receive(sock, true, &ret->packet);
	cr_assert(r >= 0, "receive: %d", r);
	if (r == 0)
		return 0;
	cr_assert(!ret->packet.cut && !ret->packet.fds_cut);
	r = message_read(ret->data, ret->packet.bytes, &ret->message, &why);
	cr_assert(r == 0, "an answer that is no message: %s", why);
	return 1;
}

void raw_reply_clear(struct raw_reply *reply)
{
	packet_drop(&reply->packet);
	message_clear(&reply->message);
}

int raw_code(int sock)
{
	static struct raw_reply reply;
	int code;

	if (!raw_receive(sock, &reply))
		return -ECONNRESET;
	cr_assert_eq(reply.message.type, MESSAGE_RESPONSE);
	code = reply.message.error.code;
	raw_refused_with(&reply.message.error);
	raw_reply_clear(&reply);
	return code;
}

void raw_refused_with(const struct error *error)
{
	snprintf(refusal, sizeof refusal, "%s (%s)", error->message, error->detail);
}

const char *raw_refusal(void)
{
	return refusal;
}

bool raw_ended(int sock)
{
	static struct raw_reply reply;
	bool ended = !raw_receive(sock, &reply);

	raw_reply_clear(&reply);
	return ended;
}

void raw_hello(int sock)
{
	struct message_writer w;

	raw_request(&w, 1, "hello");
	message_put_u64(&w, "protocol_min", PROTOCOL_MIN);
	message_put_u64(&w, "protocol_max", PROTOCOL_MAX);
	message_put_text(&w, "client", "raw");
	raw_send(sock, &w);
	cr_assert_eq(raw_code(sock), 0, "%s", refusal);
}

int raw_client(const char *path)
{
	int sock = raw_connect(path);

	raw_hello(sock);
	return sock;
}

void raw_send_with(int sock, uint64_t id, const char *method, const struct param *params)
{
	struct message_writer w;

	raw_request(&w, id, method);
	params_put(&w, params);
	raw_send(sock, &w);
}

int raw_ask_with(int sock, const char *method, const struct param *params)
{
	raw_send_with(sock, 2, method, params);
	return raw_code(sock);
}

int raw_call(int sock, const char *method)
{
	return raw_ask_with(sock, method, NULL);
}

/* ---- publishing ------------------------------------------------------- */

int raw_memfd(uint64_t bytes, bool sealed)
{
	int fd = memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	if (sealed)
		cr_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) ==
			  0);
	return fd;
}

int raw_publish_begin(struct raw_publish *p, const char *name, uint64_t bytes)
{
	return raw_publish_begin_on(p, name, "host", bytes);
}

int raw_publish_begin_on(struct raw_publish *p, const char *name, const char *device, uint64_t bytes)
{
	return raw_publish_begin_by(p, raw_client(getenv("GPUWM_SOCKET")), name, device, bytes);
}

int raw_publish_begin_by(struct raw_publish *p, int sock, const char *name, const char *device, uint64_t bytes)
{
	static struct raw_reply reply;
	struct message_writer w;
	struct fields f;
	int code;

	*p = (struct raw_publish){.sock = sock, .checker = -1, .segment = -1, .index = -1, .bytes = bytes};
	snprintf(p->device, sizeof p->device, "%s", device);
	raw_request(&w, 2, "publish_begin");
	message_put_text(&w, "name", name);
	message_put_text(&w, "device", device);
	message_put_u64(&w, "bytes", bytes);
	raw_send(p->sock, &w);
	cr_assert(raw_receive(p->sock, &reply));
	code = reply.message.error.code;
	raw_refused_with(&reply.message.error);
	if (code == 0) {
		fields_of(&f, reply.message.body);
		fields_hex128(&f, "publish", p->id);
		cr_assert_eq(packet_take_fd(&reply.packet, fields_u64(&f, "checker"), &p->checker), 0);
		cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	}
	raw_reply_clear(&reply);
	return code;
}

void raw_publish_fill(struct raw_publish *p)
{
	struct index_builder *b = index_builder_new(0, 1);
	struct index_tensor_spec spec = {.name = "t", .dtype = DTYPE_U8, .ndim = 1, .shape = &p->bytes};
	uint8_t *data = malloc(p->bytes);
	struct digest digest;
	struct index_map map;

	p->segment = raw_memfd(p->bytes, false);
	memset(data, 0x5a, p->bytes);
	cr_assert_eq(write(p->segment, data, p->bytes), (ssize_t)p->bytes);
	cr_assert(fcntl(p->segment, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) ==
		  0);
	digest = digest_of(data, p->bytes);
	free(data);
	cr_assert_eq(index_builder_segment(b, p->bytes), 0);
	cr_assert_eq(index_builder_tensor(b, &spec, NULL), 0);
	cr_assert_eq(index_builder_digest(b, 0, &digest), 0);
	cr_assert_eq(index_builder_finish(b, &p->index, &p->index_bytes, NULL), 0);
	index_builder_free(b);
	cr_assert_eq(index_map_open(p->index, p->index_bytes, true, &map, NULL), 0);
	memcpy(p->content, map.view.header->content.bytes, 16);
	index_map_close(&map);
}

int raw_hand_in(struct raw_publish *p)
{
	struct message_writer w;
	int code;

	raw_request(&w, 1, "hand_in");
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", p->index_bytes);
	message_begin_array(&w, "segments");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "fd", 1);
	message_put_u64(&w, "bytes", p->bytes);
	message_end(&w);
	message_end(&w);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	code = raw_send_bytes(p->checker, w.buffer.data, w.buffer.size,
			      (int[]){p->index, p->segment, p->segment}, p->surplus ? 3 : 2);
	message_writer_clear(&w);
	return code < 0 ? code : raw_code(p->checker);
}

void raw_commit_send(struct raw_publish *p)
{
	struct message_writer w;

	raw_request(&w, 3, "publish_commit");
	message_put_hex128(&w, "publish", p->id);
	message_put_text(&w, "device", p->device);
	message_put_hex128(&w, "content", p->content);
	if (p->attach)
		message_put_bool(&w, "attach", true);
	raw_send(p->sock, &w);
}

int raw_commit(struct raw_publish *p)
{
	raw_commit_send(p);
	return raw_code(p->sock);
}

int raw_publish_abort(struct raw_publish *p)
{
	struct message_writer w;

	raw_request(&w, 4, "publish_abort");
	message_put_hex128(&w, "publish", p->id);
	raw_send(p->sock, &w);
	return raw_code(p->sock);
}

void raw_publish_end(struct raw_publish *p)
{
	for (int *fd = (int[]){p->sock, p->checker, p->segment, p->index, -2}; *fd != -2; fd++) {
		if (*fd >= 0)
			close(*fd);
	}
}
