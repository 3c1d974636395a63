/* A part as it comes in a packet; and the checker's side of the socket that a publisher got. */
#ifndef GPUWM_LOADER_HAND_IN_H
#define GPUWM_LOADER_HAND_IN_H

#include "check.h"
#include "job.h"

/* What was handed in, by a publisher or for a verify: descriptors are owned by it. */
struct hand_in {
	int index_fd;
	uint64_t index_bytes;
	struct check_segment segments[PART_SEGMENTS_MAX];
	uint32_t segment_count;
};

/* Waits for the publisher's one `hand_in`, and answers it. Ends when the
 * publisher's socket ends (-ECANCELED), gpuwmd cancels (-ECANCELED) or goes
 * (-ECONNRESET). -EPROTO, -EINVAL, -EBADMSG: what came is no hand_in; the publisher is told the same. */
int hand_in_receive(int publisher, struct work *work, struct hand_in *ret, struct error *error);
/* `index`, `index_bytes` and `segments` of a message, with the descriptors of its packet. What was taken is in
 * ret, which was made empty, whatever comes. -EINVAL, -EBADMSG (a descriptor did not come along), in f too. */
int hand_in_take(struct fields *f, struct packet *packet, struct hand_in *ret);
/* Closes what is open; a hand_in that was made by hand_in_empty is fine. */
void hand_in_clear(struct hand_in *in);
void hand_in_empty(struct hand_in *in);

#endif
