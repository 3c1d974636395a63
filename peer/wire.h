/* The way of a version's bytes from one machine to another: UCX, which finds out what joins the two (RDMA, TCP, shared
 * memory, NVLink) and uses several rails. A wire carries only these bytes. Everything else goes over the TLS connection
 * beside it (link.h): the proof of who the other side is, which pieces are sent, their sums, and the addresses of both
 * sides' workers.
 *
 * libucp.so.0 is opened when a wire is opened, so that the programs start without it. UCX_TLS, UCX_NET_DEVICES and
 * UCX's other variables count as usual. Two of its settings don't come from the environment, because nobody may get a
 * key with which to write this process's memory: the receiver fetches (UCX_RNDV_SCHEME=get_zcopy), or the sender's
 * messages are copied.
 *
 * A wire belongs to the thread that uses it: one thread at a time. It has one peer, and ends with it.
 *
 * UCX is the only way that there is: wire.c, areas.c and ucx.c are this header's functions, and wire_none.c in a build without UCX. Another
 * way would also need a name in the messages: `worker` of messages.h is the address of a UCX worker, and nothing says which way it is of. */
#ifndef GPUWM_PEER_WIRE_H
#define GPUWM_PEER_WIRE_H

#include "../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire;

/* The addresses of a host with 8 network cards took 1.5 KiB. */
#define WIRE_ADDRESS_BYTES_MAX KIB(8)
/* Less has no room for the worker's id alone. UCX trusts its addresses: they come over TLS. */
#define WIRE_ADDRESS_BYTES_MIN 16

/* One message on its way. The caller owns it and the memory that it is about. Both stay in place until it is done, or
 * the wire is closed. Zeroed: nothing is on its way. */
struct wire_message {
	void *request;
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

/* Opens UCX and a worker. If messages are about GPU memory, the caller is inside the device's context, now and in each
 * later call. Returns 0 and sets *ret. Fails with -ENOTSUP if libucp.so.0 is missing or this build has no UCX, with
 * -ENOMEM, and with -EIO and what UCX said. */
int wire_open(struct wire **ret, struct error *error);
/* Ends the connection, and gives up messages that are on their way. Returns true if UCX uses the memory of no message any more; copies that
 * a GPU has begun may go on until the device is idle. Returns false if UCX hangs: UCX may write the memory as long as this process lives. */
bool wire_settle(struct wire *wire);
/* Frees the wire, after wire_settle. If UCX hangs, frees nothing until the process ends, because UCX would end the process at once. NULL is
 * fine. Returns NULL. */
struct wire *wire_close(struct wire *wire);

/* Makes wire_close call `release(object)`, when UCX uses the memory of no message any more. The object's memory then lives as long as the
 * wire. Call it once for a wire. */
void wire_keep(struct wire *wire, void (*release)(void *object), void *object);

/* Has UCX register memory once, for all messages in it (areas.c). The memory stays in place until the wire is closed. */
void wire_register(struct wire *wire, void *data, size_t bytes, enum wire_memory memory);

/* Returns whether UCX can send from and receive into this kind of memory. For host memory it always returns true. */
bool wire_carries(const struct wire *wire, enum wire_memory memory);

/* Returns the address of this side's worker, which the other side needs to connect. It lives as long as the wire. */
const void *wire_address(const struct wire *wire, size_t *ret_bytes);
/* Prepares sending to the worker with this address. Nothing is sent before the first message. Returns 0. Fails with
 * -EBADMSG if the address is none, with -EHOSTUNREACH if nothing joins the two, and with -EIO. */
int wire_connect(struct wire *wire, const void *address, size_t bytes, struct error *error);

/* Begins to send or to receive a message. Only so much comes as the receiver has room for: more is an error of the
 * message, -EIO. A message is done when `done` says so, which may be at once. At most 64 are on their way. Return 0. Fail
 * with -EIO and what UCX said; nothing is on its way then. */
int wire_send(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
	      struct error *error);
int wire_receive(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		 struct error *error);

/* Lets UCX work until at least one message becomes done, or `fd` can be read (-1: there is none), or until the
 * deadline (base/clock.h; in the past: it works once). Returns how many messages became done since the last call, 0 if
 * none. Fails with -ECONNRESET if the other side is gone, and with -EIO. */
int wire_progress(struct wire *wire, int fd, int64_t deadline, struct error *error);

/* Connects both sides, and passes a greeting in both directions, so that UCX has made all its connections before a message is on its way: releases
 * with assertions, as Debian's 1.13, end the process if the other side goes away while they are made. The server begins, and the taker connects
 * when its greeting has come: connections that cross each other take UCX longer. Call it until it returns something else than 1: not yet, by the
 * deadline. `address` is the other side's worker's, and stays in place until then. Returns 0. Fails as wire_connect and wire_progress. */
struct wire_meeting {
	bool begins; /* the server's side */
	const void *address;
	size_t bytes;
	uint64_t nonce;
};
int wire_meet(struct wire *wire, const struct wire_meeting *meeting, int64_t deadline, struct error *error);
/* How long the other side may take for the greeting. */
#define WIRE_MEET_MS 10000
/* The remedy in the error if the greeting does not come. */
#define WIRE_MEET_REMEDY                                                                                             \
	"are the ports that UCX uses open (UCX_TCP_PORT_RANGE), and do UCX_TLS and UCX_NET_DEVICES name what joins " \
	"the two?"

/* Tags: a nonce of 40 bits that the taker chooses, and a number that counts the messages of the connection. Whoever
 * does not know the nonce can't guess a tag. */
#define WIRE_NONCE_BITS 40
#define WIRE_NUMBER_BITS 24 /* times 4 MiB: 64 TiB over one connection */
#define WIRE_NUMBER_GREETING ((UINT32_C(1) << WIRE_NUMBER_BITS) - 1)
static inline uint64_t wire_tag(uint64_t nonce, uint32_t number)
{
	return nonce << WIRE_NUMBER_BITS | number;
}

#endif
