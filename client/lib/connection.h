/* One connection: calls with matching replies, notifications handed to a
 * handler. Knows no method but hello. Used by the library, by the loader (on the
 * socket that gpuwmd gave it) and by publishers towards their checker. */
#ifndef GPUWM_LIB_CONNECTION_H
#define GPUWM_LIB_CONNECTION_H

#include "reply.h"

/* A connected socket becomes a connection; it owns the socket. */
struct connection;
int connection_new(int sock, struct connection **ret);
/* One more use; returns the connection. connection_free gives one back and ends
 * it with the last: always NULL. */
struct connection *connection_keep(struct connection *c);
struct connection *connection_free(struct connection *c);
int connection_fd(const struct connection *c);
/* Whether the peer or connection_shutdown has ended it; without a call. */
bool connection_has_ended(const struct connection *c);
/* Ends it from any thread, also while a call waits: what is under way and what
 * follows is -ECONNRESET. */
void connection_shutdown(struct connection *c);
/* Handles a notification that comes while a call waits, or in connection_poll. It runs under the connection's lock and
 * makes no call on the connection. round: what connection_on_notify was given, to tell connections apart. */
typedef void connection_notify_fn(struct message *message, struct packet *packet, void *user_data,
				  uint64_t round);
void connection_on_notify(struct connection *c, connection_notify_fn *fn, void *user_data, uint64_t round);

/* An id for message_request: of no other request of this process, so that one
 * can go out again on another connection. */
uint64_t request_next_id(void);

/* What became of a call, besides its result. */
enum fate {
	FATE_ANSWERED, /* also: refused, or not possible to send; the connection goes on */
	FATE_UNSENT, /* the connection has ended, and the peer never had the request */
	FATE_UNANSWERED, /* the connection has ended, and the peer may have had it */
};

/* Sends a finished request and waits for its response. wait_ms -1: for ever.
 * Thread-safe; calls wait for each other. A refusal by the peer is its code
 * with *error filled. ret_reply may be NULL. -ECONNRESET: the peer is gone;
 * -ECHILD after fork; -ETIMEDOUT: no answer in wait_ms; since a late answer may
 * carry a lease that nobody would give back, the connection is given up then
 * and every further call is -ECONNRESET. The request stays the caller's. */
int connection_call(struct connection *c, struct message_writer *request, int64_t wait_ms,
		    struct reply *ret_reply, struct error *error);
/* The same with descriptors, which stay the caller's. */
struct descriptors {
	const int *fds;
	size_t count;
};
int connection_call_with(struct connection *c, struct message_writer *request,
			 const struct descriptors *descriptors, int64_t wait_ms, struct reply *ret_reply,
			 struct error *error);
/* connection_call that tells what became of the call. */
int connection_try(struct connection *c, struct message_writer *request, int64_t wait_ms,
		   struct reply *ret_reply, enum fate *ret_fate, struct error *error);
/* The same without the reply, where no other call is under way: else -EBUSY, at once. */
int connection_try_now(struct connection *c, struct message_writer *request, int64_t wait_ms,
		       enum fate *ret_fate, struct error *error);
/* Sends a finished request whose answer is nobody's: the call that is under way, or the next one, drops it. Waits for
 * nothing: -EAGAIN: the socket is full. */
int connection_post(struct connection *c, struct message_writer *request, struct error *error);
/* Sends a notification. */
int connection_notify(struct connection *c, struct message_writer *notification, struct error *error);
/* Waits for the first notification and handles all that have arrived, some
 * thousands at most: their number, 0 on timeout, -errno. */
int connection_poll(struct connection *c, int64_t wait_ms);
/* The same for what has arrived, without waiting, where no call is under way: else -EBUSY. */
int connection_poll_now(struct connection *c);

#endif
