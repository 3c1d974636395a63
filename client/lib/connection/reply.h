/* What a peer sent: an answer, or a notification. */
#ifndef GPUWM_LIB_REPLY_H
#define GPUWM_LIB_REPLY_H

#include "../error.h"
#include "../../../base/fork.h"
#include "../../../proto/wire/messages.h"
#include "../../../proto/wire/packet.h"

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

#endif
