/* A part as it comes in a packet, and the checker's side of the socket that a publisher got. */
#ifndef GPUWM_LOADER_HAND_IN_H
#define GPUWM_LOADER_HAND_IN_H

#include "../job.h"
#include "../../proto/wire/part.h"

/* Waits for the publisher's one `hand_in`, and answers it. Returns 0 and sets *ret, whose
 * descriptors the caller closes. Fails with -ECANCELED if the publisher's socket ends or gpuwmd cancels, with
 * -ECONNRESET if gpuwmd goes, and with -EPROTO, -EINVAL or -EBADMSG if the packet is not a hand_in.
 * In the last case the publisher gets the same error. */
int hand_in_receive(int publisher, struct work *work, struct part *ret, struct error *error);
/* As part_read. Fails with -EBADMSG also if other descriptors came with the packet. */
int hand_in_take(struct fields *f, struct packet *packet, struct part *ret);

#endif
