/* What the measuring programs share. They end at the first thing that goes wrong. */
#ifndef GPUWM_BENCH_H
#define GPUWM_BENCH_H

#include "proto/wire/message.h"
#include "proto/wire/packet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

/* A request that is sent many times, encoded once; REQUEST_ID is one byte on the wire. */
#define REQUEST_ID 7
struct request {
	uint8_t data[512];
	size_t bytes;
};

/* "64G", "8M"; ends the program for what is no size. */
static inline uint64_t parse_bytes(const char *text)
{
	char *end;
	uint64_t bytes = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || bytes == 0 || *(end + (shift > 0)))
		DIE("%s is no size", text);
	return bytes << shift;
}

static inline double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static inline int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Sorts the values. */
static inline double percentile(double *values, size_t count, double share)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	return values[(size_t)((double)(count - 1) * share)];
}

static inline int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (sock < 0 || connect(sock, (struct sockaddr *)&address, sizeof(address)) < 0)
		DIE("connect to %s: %s", path, strerror(errno));
	return sock;
}

static inline void send_request(int sock, const struct request *request)
{
	int r = packet_send(sock, request->data, request->bytes, NULL, 0);

	if (r < 0)
		DIE("sending a request: %s", strerror(-r));
}

/* Sends, waits, receives; the packet's descriptors are the caller's to drop. */
static inline void round_trip(int sock, const struct request *request, struct packet *packet)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	int r;

	send_request(sock, request);
	if (poll(&ready, 1, CALL_TIMEOUT_MS) != 1)
		DIE("no answer in %d ms", CALL_TIMEOUT_MS);
	r = packet_receive(sock, true, packet);
	if (r != 1)
		DIE("receiving an answer: %s", r ? strerror(-r) : "the connection ended");
}

static inline void request_finish(struct message_writer *w, struct request *ret)
{
	if (message_finish(w) < 0 || w->buffer.size > sizeof(ret->data))
		DIE("a request does not fit");
	memcpy(ret->data, w->buffer.data, w->buffer.size);
	ret->bytes = w->buffer.size;
	message_writer_clear(w);
}

static inline void request_hello(struct request *ret)
{
	struct message_writer w;

	message_writer_init(&w, sizeof(ret->data));
	message_request(&w, REQUEST_ID, "hello");
	message_put_u64(&w, "protocol_min", PROTOCOL_MIN);
	message_put_u64(&w, "protocol_max", PROTOCOL_MAX);
	message_put_text(&w, "client", "bench");
	message_end(&w);
	request_finish(&w, ret);
}

static inline void request_get_handles(const char *ref, struct request *ret)
{
	struct message_writer w;

	message_writer_init(&w, sizeof(ret->data));
	message_request(&w, REQUEST_ID, "get_handles");
	message_put_text(&w, "ref", ref);
	message_end(&w);
	request_finish(&w, ret);
}

static inline void request_release(uint64_t lease, struct request *ret)
{
	struct message_writer w;

	message_writer_init(&w, sizeof(ret->data));
	message_request(&w, REQUEST_ID, "release");
	message_put_u64(&w, "lease", lease);
	message_end(&w);
	request_finish(&w, ret);
}

/* The answer's field `key`, or 0 for key NULL; an error that was answered ends the program. */
static inline uint64_t answer_u64(const struct packet *packet, const char *key)
{
	struct message message;
	struct fields fields;
	const char *why;
	uint64_t value;

	if (message_read(packet->data, packet->bytes, &message, &why) < 0)
		DIE("an answer that is none: %s", why);
	if (message.error.code)
		DIE("%s (%s)", message.error.message, message.error.detail);
	fields_of(&fields, message.body);
	value = key ? fields_u64(&fields, key) : 0;
	if (fields.error.code)
		DIE("%s", fields.error.message);
	message_clear(&message);
	return value;
}

/* A connection to gpuwmd after its hello. */
static inline int connect_and_greet(const char *path, struct packet *packet)
{
	int sock = connect_to(path);
	struct request hello;

	request_hello(&hello);
	round_trip(sock, &hello, packet);
	answer_u64(packet, NULL);
	packet_drop(packet);
	return sock;
}

#endif
