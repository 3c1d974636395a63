/* One process of a flood: its connections, the requests that it sends, and how its flood goes on. */
#ifndef GPUWM_BENCH_FLOODER_H
#define GPUWM_BENCH_FLOODER_H

#include "../bench.h"
#include "flood.h"

#include <stdbool.h>

/* So long one connection, or one answer, may take while the others of the flood begin. */
#define FLOODER_OPEN_MS 120000

struct connection {
	int sock;
	unsigned step, number;
};

struct flooder {
	const struct flood_settings *settings;
	const struct flood_way *way;
	struct connection *connections;
	unsigned process, count;
	uint64_t *done;
	int epoll;
	struct packet packet;
	uint8_t *costly; /* a request */
	size_t costly_bytes;
};

/* How a flood goes on. `reply` is NULL at the start, and after the connection was opened anew. */
struct flood_way {
	void (*prepare)(struct flooder *f); /* optional: what is held from the start */
	void (*next)(struct flooder *f, struct connection *c, const struct message *reply);
	void (*run)(struct flooder *f); /* in place of next: all of it */
};

/* ---- requests: none waits for its answer, and none fails if gpuwmd has ended the connection ---- */

void flooder_send(const struct connection *c, const void *data, size_t bytes);
void flooder_send_written(const struct connection *c, struct message_writer *w);
void flooder_begin(struct message_writer *w, const char *method);
void flooder_send_empty(const struct connection *c, const char *method);
void flooder_send_get_handles(const struct flooder *f, const struct connection *c);
void flooder_send_release(const struct connection *c, uint64_t lease);
void flooder_send_hello(const struct connection *c);
/* A number of the result; 0 if the result has none of that name. */
uint64_t flooder_number(const struct message *reply, const char *key);

/* ---- connections ---- */

/* Opens a connection and says hello; tries again for FLOODER_OPEN_MS, since gpuwmd may refuse more than so many at a time. */
int flooder_open(struct flooder *f);
/* Watches a connection for answers, with the epoll of the process. */
void flooder_watch(struct flooder *f, struct connection *c);
void flooder_open_all(struct flooder *f);
/* Reads the answer to a request that was sent before the flood began. Returns false at the end of the connection. */
bool flooder_ask(struct flooder *f, struct connection *c);

#endif
