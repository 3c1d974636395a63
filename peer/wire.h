/* The way of a version's bytes from one machine to another. A wire carries only these bytes. Everything else goes over the TLS connection
 * beside it (link.h): the proof of who the other side is, which pieces are sent, their sums, and the addresses of both sides.
 *
 * How the bytes travel is a transport's: a struct wire_ops in a file of its own, and a row of `wires` in wires.c. A take goes by the first one
 * of the taker's table that the server has too, and that joins the two (peer_way.h). What a transport has to tell the other side is its address:
 * bytes that only the transport reads.
 *
 *   rdma  UCX, by network cards that have RDMA (wire_ucx.c)
 *   gpus  UCX, between GPUs of one machine: NVLink (wire_ucx.c)
 *   tls   further connections of TLS beside the take's own, which every two nodes have (wire_tls.c)
 *
 * Nobody may get a key with which to write this process's memory: the receiver fetches, or the sender's messages are copied.
 *
 * A wire belongs to the thread that uses it: one thread at a time. It has one peer, and ends with it. */
#ifndef GPUWM_PEER_WIRE_H
#define GPUWM_PEER_WIRE_H

#include "link.h"
#include "messages.h"

#include "../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire;
struct wire_ops;

/* The addresses of a host with 8 network cards took UCX 1.5 KiB. */
#define WIRE_ADDRESS_BYTES_MAX (PEER_WORKER_TEXT / 2)

/* One message on its way. The caller owns it and the memory that it is about. Both stay in place until it is done, or
 * the wire is closed. Zeroed: nothing is on its way. */
struct wire_message {
	void *request; /* the transport's */
	int result; /* once it is done: 0 or -errno */
	bool done;
};

enum wire_memory { WIRE_HOST, WIRE_CUDA };

/* What a message is about. */
struct wire_piece {
	uint64_t tag;
	void *data; /* to be sent, which leaves it unchanged, or to be filled */
	size_t bytes;
	enum wire_memory memory;
};

/* This program's transports, the best one first. NULL ends the array. */
extern const struct wire_ops *const wires[];

/* Finds this program's transport by its name in messages. Returns 0 and sets *ret. Fails with -ENOTSUP if this build has none of this name. */
int wire_find(const char *name, const struct wire_ops **ret, struct error *error);
/* Sets ret_names to the names of this program's transports that this machine has what they need for. Returns how many there are. */
uint32_t wire_names(const char *ret_names[WIRES_MAX]);

/* Opens a wire: of the server, which sends, or of the taker. If messages are about GPU memory, the caller is inside the device's context, now and in each later call. Returns 0 and
 * sets *ret. Fails with -ENOTSUP if the transport needs what this machine has not, with -ENOMEM, and with -EIO and what the transport said. */
int wire_open(const struct wire_ops *ops, bool serves, struct wire **ret, struct error *error);
/* Ends the connection, and gives up messages that are on their way. Returns true if the transport uses the memory of no message any more;
 * copies that a GPU has begun may go on until the device is idle. Returns false if it hangs: it may write the memory as long as this process
 * lives. */
bool wire_settle(struct wire *wire);
/* Frees the wire, after wire_settle. If the transport hangs, frees nothing until the process ends, because UCX would end the process at once.
 * NULL is fine. Returns NULL. */
struct wire *wire_close(struct wire *wire);

/* Makes wire_close call `release(object)`, when the memory of no message is used any more. The object's memory then lives as long as the
 * wire. Call it once for a wire. */
void wire_keep(struct wire *wire, void (*release)(void *object), void *object);

/* Has the transport register memory once, for all messages in it. The memory stays in place until the wire is closed. */
void wire_register(struct wire *wire, void *data, size_t bytes, enum wire_memory memory);

/* Returns whether the transport can send from and receive into this kind of memory. For host memory it always returns true. */
bool wire_carries(const struct wire *wire, enum wire_memory memory);

/* Returns this side's address, which the other side needs to connect. It lives as long as the wire. */
const void *wire_address(const struct wire *wire, size_t *ret_bytes);

/* An address as text of hexadecimal digits, and back. wire_text returns text for free(), or NULL. wire_bytes returns 0 and sets *ret, for free().
 * Fails with -EPROTO and -ENOMEM. */
char *wire_text(const void *address, size_t bytes);
int wire_bytes(const char *text, void **ret, size_t *ret_bytes, struct error *error);

/* What a wire needs to find the other side. All that it points to stays in place until wire_meet returns something else than 1. */
struct wire_meeting {
	const void *address; /* the other side's */
	size_t bytes;
	uint64_t nonce;
	/* The taker's: the server, as the take's own link reached it; how many connections may go there; whether they need not be encrypted. */
	struct peer_keys *keys;
	const struct link_target *target;
	unsigned lanes;
	bool clear;
};
/* Connects both sides. No message is on its way before. Call it until it returns something else than 1: not yet, by the deadline. Returns 0. Fails
 * with -EBADMSG if the address is none, with -EHOSTUNREACH if nothing joins the two, with -ECONNRESET if the other side is gone, and with -EIO. */
int wire_meet(struct wire *wire, const struct wire_meeting *meeting, int64_t deadline, struct error *error);
/* How long the other side may take. */
#define WIRE_MEET_MS 10000

/* Begins to send or to receive a message. Only so much comes as the receiver has room for: more is an error of the
 * message, -EIO. A message is done when `done` says so, which may be at once. At most WIRE_MESSAGES_MAX are on their way. Return 0. Fail
 * with -EIO and what the transport said; nothing is on its way then. */
int wire_send(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
	      struct error *error);
int wire_receive(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		 struct error *error);

/* Lets the transport work until at least one message becomes done, or `fd` can be read (-1: there is none), or until the
 * deadline (base/clock.h; in the past: it works once). Returns how many messages became done since the last call, 0 if
 * none. Fails with -ECONNRESET if the other side is gone, and with -EIO. */
int wire_progress(struct wire *wire, int fd, int64_t deadline, struct error *error);

/* Tags: a nonce of 40 bits that the taker chooses, and a number that counts the messages of the connection. Whoever
 * does not know the nonce can't guess a tag. */
#define WIRE_NONCE_BITS 40
#define WIRE_NUMBER_BITS 24 /* times 4 MiB: 64 TiB over one connection */
static inline uint64_t wire_tag(uint64_t nonce, uint32_t number)
{
	return nonce << WIRE_NUMBER_BITS | number;
}

/* ---- a transport ----------------------------------------------------------- */

/* So many messages are on their way at most: those of a taker, which has asked for each of them. */
#define WIRE_MESSAGES_MAX 64

/* What all wires have; the first member of a transport's own struct. */
struct wire {
	const struct wire_ops *ops;
	bool serves; /* this is the server's side */
	struct wire_message *messages[WIRE_MESSAGES_MAX]; /* on their way */
	unsigned message_count;
	int ended; /* messages that wire_progress has not counted yet */
	void (*release)(void *object); /* NULL: nothing ends with the wire */
	void *object;
	unsigned nap_us; /* the last nap */
	bool of_gpu; /* a message of a GPU's memory was begun */
	double worked; /* when the transport last had something to do, by clock_steady_seconds */
};

/* What a transport has to do. The functions that wire.h declares above say how. */
struct wire_ops {
	const char *name; /* in messages between nodes */
	const char *title; /* for people */
	const char *remedy; /* the remedy in the error if both sides do not meet */
	bool of_one_machine; /* it joins GPUs of one machine, and nothing else */
	/* What it brings a second at least, judged when so many bytes have come: with less it is not the way that it was chosen for. 0: it is not
	 * judged. */
	uint64_t rate_min, judged_bytes;
	/* Returns 0 if this machine has what the transport needs. Fails with -ENOTSUP, with what is missing and where to get it. NULL: nothing is
	 * needed. Any thread. */
	int (*here)(struct error *error);
	/* Returns 0 and sets *ret to zeroed memory with what the transport needs in it. */
	int (*open)(struct wire **ret, struct error *error);
	bool (*settle)(struct wire *wire);
	void (*free)(struct wire *wire); /* after settle returned true */
	void (*add_memory)(struct wire *wire, void *data, size_t bytes,
			   enum wire_memory memory); /* NULL: there is nothing to register */
	bool (*carries_gpu)(const struct wire *wire); /* NULL: it carries host memory only */
	const void *(*address)(const struct wire *wire, size_t *ret_bytes);
	/* Does what can be done without waiting. Returns 1 if both sides have not met yet. */
	int (*meet)(struct wire *wire, const struct wire_meeting *meeting, struct error *error);
	/* They return 0, and have passed the message to wire_message_begun or wire_message_end. */
	int (*send)(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		    struct error *error);
	int (*receive)(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		       struct error *error);
	/* Does what can be done without waiting, and ends messages that are done. Returns whether there was something to do. */
	bool (*work)(struct wire *wire);
	/* Returns 0 as long as the connection works, and else why it does not. */
	int (*state)(const struct wire *wire, struct error *error);
};

/* Notes that a message is on its way. wire_send and wire_receive have seen that there is room for it. */
void wire_message_begun(struct wire *wire, struct wire_message *message);
/* Notes that a message is done, whether it was on its way or not. */
void wire_message_end(struct wire *wire, struct wire_message *message, int result);

extern const struct wire_ops wire_rdma, wire_gpus, wire_tls;

#endif
