#include "flooder.h"

#include <sys/epoll.h>

#define RETRY_US 1000

/* ---- requests ---- */

/* gpuwmd may have ended the connection: the end is read then. */
void flooder_send(const struct connection *c, const void *data, size_t bytes)
{
	packet_send(c->sock, data, bytes, NULL, 0);
}

void flooder_send_written(const struct connection *c, struct message_writer *w)
{
	message_end(w);
	if (message_finish(w) < 0)
		DIE("a request does not fit");
	flooder_send(c, w->buffer.data, w->buffer.size);
	message_writer_clear(w);
}

void flooder_begin(struct message_writer *w, const char *method)
{
	message_writer_init(w, PACKET_BYTES_MAX);
	message_request(w, REQUEST_ID, method);
}

void flooder_send_empty(const struct connection *c, const char *method)
{
	struct message_writer w;

	flooder_begin(&w, method);
	flooder_send_written(c, &w);
}

void flooder_send_get_handles(const struct flooder *f, const struct connection *c)
{
	struct request request;

	request_get_handles(f->settings->ref, &request);
	flooder_send(c, request.data, request.bytes);
}

void flooder_send_release(const struct connection *c, uint64_t lease)
{
	struct request request;

	request_release(lease, &request);
	flooder_send(c, request.data, request.bytes);
}

void flooder_send_hello(const struct connection *c)
{
	struct request request;

	request_hello(&request);
	flooder_send(c, request.data, request.bytes);
}

uint64_t flooder_number(const struct message *reply, const char *key)
{
	struct fields fields;

	if (!reply || reply->error.code)
		return 0;
	fields_of(&fields, reply->body);
	return fields_u64_or(&fields, key, 0);
}

/* ---- connections ---- */

static bool wait_readable(int sock, int ms)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};

	return poll(&ready, 1, ms) == 1;
}

/* A connection after its hello; -1: gpuwmd did not take it. */
static int try_open(struct flooder *f)
{
	struct message message = {0};
	struct connection c = {.sock = connect_to(f->settings->socket)};
	const char *why;
	bool taken;

	flooder_send_hello(&c);
	taken = wait_readable(c.sock, FLOODER_OPEN_MS) && packet_receive(c.sock, true, &f->packet) == 1 &&
		message_read(f->packet.data, f->packet.bytes, &message, &why) == 0 && !message.error.code;
	message_clear(&message);
	if (taken)
		return c.sock;
	close(c.sock);
	return -1;
}

int flooder_open(struct flooder *f)
{
	double give_up = now_us() + FLOODER_OPEN_MS * 1e3;
	int sock;

	while ((sock = try_open(f)) < 0) {
		if (now_us() > give_up)
			DIE("gpuwmd does not take connection after connection");
		usleep(RETRY_US);
	}
	return sock;
}

void flooder_watch(struct flooder *f, struct connection *c)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(c - f->connections)};

	if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, c->sock, &event) < 0)
		DIE("epoll: %s", strerror(errno));
}

void flooder_open_all(struct flooder *f)
{
	f->connections = calloc(f->count, sizeof(*f->connections));
	f->packet.data = malloc(PACKET_BYTES_MAX + 1);
	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!f->connections || !f->packet.data || f->epoll < 0)
		DIE("out of memory");
	for (unsigned i = 0; i < f->count; i++)
		f->connections[i].sock = flooder_open(f);
}

bool flooder_ask(struct flooder *f, struct connection *c)
{
	bool answered =
		wait_readable(c->sock, FLOODER_OPEN_MS) && packet_receive(c->sock, true, &f->packet) == 1;

	packet_drop(&f->packet);
	return answered;
}
