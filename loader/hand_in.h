/* A part as it comes in a packet, and the checker's side of the socket that a publisher got. */
#ifndef GPUWM_LOADER_HAND_IN_H
#define GPUWM_LOADER_HAND_IN_H

#include "check.h"
#include "job.h"

/* A part that a publisher handed in, or that gpuwmd sent for a verify. It owns the descriptors. */
struct hand_in {
	int index_fd;
	uint64_t index_bytes;
	struct check_segment segments[PART_SEGMENTS_MAX];
	uint32_t segment_count;
};

/* Waits for the publisher's one `hand_in`, and answers it. Returns 0 and sets *ret, for
 * hand_in_clear. Fails with -ECANCELED if the publisher's socket ends or gpuwmd cancels, with
 * -ECONNRESET if gpuwmd goes, and with -EPROTO, -EINVAL or -EBADMSG if the packet is not a hand_in.
 * In the last case the publisher gets the same error. */
int hand_in_receive(int publisher, struct work *work, struct hand_in *ret, struct error *error);
/* Reads `index`, `index_bytes` and `segments` of a message, with the descriptors of its packet.
 * Returns 0. Fails with -EINVAL, or with -EBADMSG if a descriptor did not come with the packet; f
 * has the error too. In any case *ret owns the descriptors that were taken. */
int hand_in_take(struct fields *f, struct packet *packet, struct hand_in *ret);
/* Closes the descriptors. A hand_in that hand_in_empty made is fine. */
void hand_in_clear(struct hand_in *in);
void hand_in_empty(struct hand_in *in);

#endif
