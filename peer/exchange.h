/* Messages on a link: sent and received whole. */
#ifndef GPUWM_PEER_EXCHANGE_H
#define GPUWM_PEER_EXCHANGE_H

#include "link.h"
#include "messages.h"

/* A message that was received, and the bytes that it points into. */
struct peer_message {
	struct message message;
	void *bytes;
};
/* Frees the message and its bytes. A zeroed message is fine. */
void peer_message_clear(struct peer_message *message);

/* Sends what the writer holds and clears the writer, also if the call fails. Returns 0, fails as link_write, and with the writer's
 * own error. */
int peer_send(struct link *link, struct message_writer *w, struct error *error);

/* Receives a message of at most bytes_max bytes. The first byte may take first_ms, and each further step LINK_SILENCE_MS. Returns 0 and
 * sets *ret, for peer_message_clear. Fails as link_read, and with -EPROTO for a message that is too large or malformed. */
int peer_receive(struct link *link, size_t bytes_max, uint64_t first_ms, struct peer_message *ret,
		 struct error *error);

/* Returns the code of an error that the other side told. Codes by which a program ends its own work become -EIO: what the other side
 * has run out of, or has given up, is no reason to end the work here. */
int peer_told_code(int code);

/* Asks, and waits for the answer: form->params from `params`, form->result into `result`, whose pointers lead into *ret until
 * peer_message_clear. Returns 0. Fails with peer_told_code of the answer, whose message then names the peer, and as peer_send and
 * peer_receive. */
int peer_call(struct link *link, const struct message_form *form, const void *params, void *result,
	      struct peer_message *ret, struct error *error);

/* Sends the taker's hello, and receives the answer. Returns 0 and sets *ret_hello, whose texts are valid until peer_message_clear of
 * *ret. Fails as peer_call does, and with -EPROTONOSUPPORT; then the message names the other program and the protocols of both. */
int peer_greet(struct link *link, const char *program, struct peer_hello_result *ret_hello,
	       struct peer_message *ret, struct error *error);

#endif
