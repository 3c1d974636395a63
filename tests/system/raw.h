/* Peers that speak the protocol without the library: they can be wrong. */
#ifndef GPUWM_TESTS_RAW_H
#define GPUWM_TESTS_RAW_H

#include "harness.h"

#include "../../proto/index/index.h"
#include "../../proto/wire/message.h"
#include "../../proto/wire/packet.h"
#include "../support/any/params.h"

/* A connection without hello; raw_hello says it and drops the answer. */
int raw_connect(const char *path);
void raw_hello(int sock);
int raw_client(const char *path);

/* Any bytes, any descriptors: 0 or -errno. */
int raw_send_bytes(int sock, const void *data, size_t bytes, const int *fds, size_t fd_count);
/* Finishes, sends and clears a message. */
void raw_send(int sock, struct message_writer *w);
void raw_send_fds(int sock, struct message_writer *w, const int *fds, size_t fd_count);
void raw_request(struct message_writer *w, uint64_t id, const char *method);

struct raw_reply {
	struct message message;
	struct packet packet;
	uint8_t data[PACKET_BYTES_MAX + 1];
};
/* Waits for one packet: 1, or 0 at the end of the connection. Times out by failing the test. */
int raw_receive(int sock, struct raw_reply *ret);
void raw_reply_clear(struct raw_reply *reply);
/* Receives a response and drops it: its error code (0: none), -ECONNRESET at the end. */
int raw_code(int sock);
bool raw_ended(int sock);
/* Sends a request with these parameters; NULL is none. */
void raw_send_with(int sock, uint64_t id, const char *method, const struct param *params);
#define RAW_SEND(sock, id, method, ...) raw_send_with((sock), (id), (method), PARAMS(__VA_ARGS__))
/* Also receives the answer: its code. raw_call has no parameters. */
int raw_ask_with(int sock, const char *method, const struct param *params);
#define RAW_ASK(sock, method, ...) raw_ask_with((sock), (method), PARAMS(__VA_ARGS__))
int raw_call(int sock, const char *method);

/* ---- a publisher of one tensor "t" (U8) in host memory, step by step --- */

struct raw_publish {
	int sock, checker;
	char device[64];
	uint8_t id[16], content[16];
	int segment, index;
	uint64_t bytes, index_bytes; /* what hand_in will say */
	bool surplus; /* hand_in sends a descriptor that it does not name */
	bool attach; /* the commit asks for a lease */
};
/* The code of publish_begin; connects first. */
int raw_publish_begin(struct raw_publish *p, const char *name, uint64_t bytes);
int raw_publish_begin_on(struct raw_publish *p, const char *name, const char *device, uint64_t bytes);
/* The same on a connection that has said hello, which is p's then. */
int raw_publish_begin_by(struct raw_publish *p, int sock, const char *name, const char *device, uint64_t bytes);
/* Memory with a pattern, sealed, and a right index of it. */
void raw_publish_fill(struct raw_publish *p);
/* A sealed memfd of these bytes of zeros; seal 0: unsealed. */
int raw_memfd(uint64_t bytes, bool sealed);
/* Sends p's descriptors; the code of hand_in's answer, which may be the refusal already. */
int raw_hand_in(struct raw_publish *p);
void raw_commit_send(struct raw_publish *p);
/* The code; the refusal's message is kept for raw_refusal. */
int raw_commit(struct raw_publish *p);
int raw_publish_abort(struct raw_publish *p);
const char *raw_refusal(void);
/* Keeps the message of an error for raw_refusal. */
void raw_refused_with(const struct error *error);
void raw_publish_end(struct raw_publish *p);

#endif
