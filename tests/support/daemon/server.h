/* A server without sockets of its own and without loaders: the test holds the
 * other end of every connection and turns the loop. */
#ifndef GPUWM_TESTS_DAEMON_SERVER_H
#define GPUWM_TESTS_DAEMON_SERVER_H

#include "daemon/work/versions/leases.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "daemon/work/versions/versions.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/params.h"
#include "proto/wire/message.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

extern struct config config;
extern struct server *server;
extern int fds_before;

extern struct packet packet;
extern struct message message;

/* Fixtures: a server without loaders; its end, after which no descriptor of it is left. */
void server_open(void);

/* Clears `packet` and `message`, which are what was received last. */
void forget(void);
void server_close(void);

/* All that can be done without waiting. */
void turn(void);

/* The loop goes on until the condition holds, ten seconds at most. */
#define TURN_UNTIL(condition)                                                                                  \
	for (int turns_ = 0; !(condition); turns_++) {                                                         \
		cr_assert(turns_ < 10000, "in vain: %s", #condition);                                          \
		uv_run(&server->loop, UV_RUN_NOWAIT);                                                          \
		usleep(1000);                                                                                  \
	}

/* Returns the other end of a new connection. server_close closes it, unless the test has done so. */
int connect_as(enum session_kind kind);

/* ---- asking ---- */

/* Closes the params and sends. */
void send_request(int sock, struct message_writer *w);
void begin_request(struct message_writer *w, uint64_t id, const char *method);

/* Whether a packet is there, after a turn of the loop. */
bool comes(int sock);

/* The same for a packet that is no event of the audit; those are skipped. */
bool comes_beside_audit(int sock);

/* Whether the connection has ended. */
bool is_ended(int sock);

/* The code of the answer that is there now: 0 or a negative errno. */
int answered(int sock);

/* The code of an answer that takes its time. */
int answered_later(int sock);
/* Sends a request with these parameters; NULL is none. */
void send_with(int sock, uint64_t id, const char *method, const struct param *params);
#define SEND(sock, id, method, ...) send_with((sock), (id), (method), PARAMS(__VA_ARGS__))
void send_plain(int sock, uint64_t id, const char *method);

/* Sends a request without params. ask also waits for the answer and returns its code. */
int ask(int sock, const char *method);
/* The same with parameters. */
int ask_with(int sock, const char *method, const struct param *params);
#define ASK(sock, method, ...) ask_with((sock), (method), PARAMS(__VA_ARGS__))

/* Says hello. greeted connects first. */
void say_hello(int sock);
int greeted(enum session_kind kind);

/* Sends get_handles, release: with one parameter or two. */
void send_get(int sock, uint64_t id, const char *ref, int64_t wait_ms);

/* Read the result in `message`. A text stays until the next call. */
uint64_t answer_u64(const char *key);
bool answer_has(const char *key);
const char *answer_text(const char *key);
uint32_t answer_count(const char *key); /* of an array */

/* ---- versions, without a loader ---- */

/* Begins a publish, of one part on the host. */
struct publish *building(const char *model, const char *tag, struct publish_part **ret_part);

/* Makes the version of such a publish ready, with so many segments. */
struct version *complete(struct publish *publish, struct publish_part *part, uint32_t segments);

/* Both at once. */
struct version *ready_with(const char *model, const char *tag, uint32_t segments);
struct version *ready(const char *model, const char *tag);

/* Queues a load of m@TAG by this user, which has no device yet. */
struct job *new_load(const char *source, const char *tag, uid_t uid);

/* How many leases the registry counts. */
uint64_t leases(void);

#endif
