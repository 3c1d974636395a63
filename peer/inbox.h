/* Messages that arrive while the caller's thread does something else: the inbox has a thread that receives them. */
#ifndef GPUWM_PEER_INBOX_H
#define GPUWM_PEER_INBOX_H

#include "exchange.h"

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
