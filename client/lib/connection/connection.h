/* One connection: a call gets the reply with its id, and a handler gets notifications. It knows no method but hello. The library uses
 * it, the loader (on the socket that gpuwmd gave it), and a publisher towards its checker. */
#ifndef GPUWM_LIB_CONNECTION_H
#define GPUWM_LIB_CONNECTION_H

#include "../error.h"
#include "../../../base/fork.h"
#include "../../../proto/wire/messages.h"
#include "../../../proto/wire/packet.h"

/* ---- what a peer sent: an answer, or a notification ---- */

/* A reply, with its descriptors (dropped by reply_clear unless taken). It stays where it was received: until then a
 * forked child closes them. */
struct reply {
	struct message message;
	struct packet packet;
	void *body; /* a mapped large result, or NULL */
	size_t body_bytes;
	struct fork_hook hook;
};
void reply_clear(struct reply *reply);

/* Receives one packet into the buffer, which has room for PACKET_BYTES_MAX + 1 bytes. As packet_receive. */
int reply_receive(int sock, uint8_t *buffer, struct reply *ret);

/* Reads the packet. What was received is the reply's own then, so that the buffer is free for the next packet. If this
 * fails, the reply is cleared. -EMFILE, -EPROTO, -ENOMEM. */
int reply_decode(struct reply *reply, struct error *error);

/* Maps a large result, which lies in a memfd beside the packet, and puts it in place of the answer's own body. Does nothing
 * if there is none. -EPROTO, -ENOMEM. */
int reply_open_body(struct reply *reply, struct error *error);

/* Reads the result of a method into *ret, a struct of the form's result, whose pointers are valid until reply_clear. -EPROTO,
 * -ENOMEM. */
int reply_read(const struct reply *reply, const struct message_form *form, void *ret, struct error *error);

/* ---- the connection ---- */

/* connection_new makes a connection of a connected socket, and takes the socket over. */
struct connection;
int connection_new(int sock, struct connection **ret);
/* connection_keep adds a use, and returns the connection. connection_free ends a use, closes the connection after the last one, and
 * returns NULL. */
struct connection *connection_keep(struct connection *c);
struct connection *connection_free(struct connection *c);
int connection_fd(const struct connection *c);
/* Returns whether the peer or connection_shutdown has ended the connection. Makes no call. */
bool connection_has_ended(const struct connection *c);
/* Ends the connection, from any thread. Calls that wait, and later calls, fail with -ECONNRESET. */
void connection_shutdown(struct connection *c);
/* Handles a notification that comes while a call waits, or in connection_poll. It runs under the connection's lock and
 * makes no call on the connection. round: what connection_on_notify was given, to tell connections apart. */
typedef void connection_notify_fn(struct message *message, struct packet *packet, void *user_data,
				  uint64_t round);
void connection_on_notify(struct connection *c, connection_notify_fn *fn, void *user_data, uint64_t round);

/* Returns an id for message_request that no other request of this process has, so that a request can be sent again on another
 * connection. */
uint64_t request_next_id(void);

/* What became of a call, besides its result. */
enum fate {
	FATE_ANSWERED, /* also: refused, or not possible to send; the connection goes on */
	FATE_UNSENT, /* the connection has ended, and the peer never had the request */
	FATE_UNANSWERED, /* the connection has ended, and the peer may have had it */
};

/* Sends a finished request, which stays the caller's, and waits for its response. wait_ms -1: for ever. Sets *ret_reply (may be NULL),
 * which the caller clears. Any thread may call it; calls wait for each other. If the peer refuses the request, returns the peer's
 * code. Fails with
 *   -ECONNRESET  The peer is gone.
 *   -ECHILD      This process is a fork of the one that made the connection.
 *   -ETIMEDOUT   No answer came in wait_ms. A late answer might bring a lease that nobody would give back. So the connection ends,
 *                and every later call fails with -ECONNRESET. */
int connection_call(struct connection *c, struct message_writer *request, int64_t wait_ms,
		    struct reply *ret_reply, struct error *error);
/* connection_call_with sends descriptors too, which stay the caller's. */
struct descriptors {
	const int *fds;
	size_t count;
};
int connection_call_with(struct connection *c, struct message_writer *request,
			 const struct descriptors *descriptors, int64_t wait_ms, struct reply *ret_reply,
			 struct error *error);
/* As connection_call, and sets *ret_fate. */
int connection_try(struct connection *c, struct message_writer *request, int64_t wait_ms,
		   struct reply *ret_reply, enum fate *ret_fate, struct error *error);
/* The same without the reply. If another call is under way, fails with -EBUSY at once. */
int connection_try_now(struct connection *c, struct message_writer *request, int64_t wait_ms,
		       enum fate *ret_fate, struct error *error);
/* Sends a finished request whose answer nobody needs: the call that is under way, or the next one, drops the answer. Does not wait:
 * fails with -EAGAIN if the socket is full. */
int connection_post(struct connection *c, struct message_writer *request, struct error *error);
/* Sends a notification. */
int connection_notify(struct connection *c, struct message_writer *notification, struct error *error);
/* Waits for a notification, and handles all that have arrived, some thousands at most. Returns their number; 0: none came in wait_ms.
 * Fails with -errno. */
int connection_poll(struct connection *c, int64_t wait_ms);
/* Handles the notifications that have arrived, without waiting. If a call is under way, fails with -EBUSY. */
int connection_poll_now(struct connection *c);

/* ---- signs of life of publishers ----
 * gpuwmd fails the publish of a publisher that is silent for too long. So a thread of the library, one
 * for each process, sends a ping for each open publish. The thread runs only while there are open publishes. */

/* Part of a publish. */
struct alive {
	struct connection *connection; /* NULL: no pings are sent */
	int64_t every_ms;
	uint64_t next_ms;
	uint64_t generation; /* of fork: in a child, the thread and its list are the parent's */
	struct alive *prev, *next;
};

/* Sends a ping on the connection every so many milliseconds from now on. Takes the connection over in any case. Fails with -EAGAIN
 * if the thread can't be made. */
int alive_begin(struct alive *alive, struct connection *connection, int64_t every_ms, struct error *error);
/* Ends the pings. A zeroed struct and a second call are fine. */
void alive_end(struct alive *alive);

#endif
