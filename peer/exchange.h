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

/* ---- the inbox (inbox.c) ----
 *
 * Messages that arrive while the caller's thread does something else: the inbox has a thread that receives them. */

/* A taker wants a few dozen pieces ahead. If it sends more, the inbox reads no further, and TCP holds the taker back. */
#define INBOX_MESSAGES_MAX 64

/* How long the inbox waits for the next message: a week, which is practically without a limit. The caller of inbox_take has a limit of
 * its own. */
#define INBOX_WAIT_MS (7 * 24 * 3600 * UINT64_C(1000))

struct inbox;

/* Begins to receive from the link, which nobody else reads until inbox_close. Returns 0 and sets *ret. Fails with -ENOMEM, -EMFILE and
 * -EAGAIN. */
int inbox_open(struct link *link, struct inbox **ret, struct error *error);
/* Ends the link for both directions (link_interrupt), and waits for the thread. inbox may be NULL. Returns NULL. */
struct inbox *inbox_close(struct inbox *inbox);

/* Returns a descriptor for poll(2), which the inbox keeps. poll finds it readable while there is a message or an error to take. */
int inbox_fd(const struct inbox *inbox);
/* Takes the next message. Returns 1 and sets *ret, which the caller frees with peer_message_clear. Returns 0 if no message has come
 * yet. If the connection has ended and all messages are taken, the call fails as peer_receive did. */
int inbox_take(struct inbox *inbox, struct peer_message *ret, struct error *error);

#endif
