/* A part on its way between two processes: an index and its segments, each a descriptor with the
 * bytes behind it. Every message that carries a part has the keys `index`, `index_bytes` and
 * `segments`, which part_write writes and part_read reads. */
#ifndef GPUWM_PROTO_PART_H
#define GPUWM_PROTO_PART_H

#include "message.h"
#include "packet.h"

struct part_fd {
	int fd; /* -1: somebody else has taken it */
	uint64_t bytes;
};

/* The array has room for as many segments as a part may have (4 KiB), so that nothing is allocated.
 * Whoever reads a part owns its descriptors until part_close. A part may also be a list of somebody
 * else's descriptors, to be written. */
struct part {
	struct part_fd index; /* fd -1: there is none */
	uint32_t segment_count;
	struct part_fd segments[PART_SEGMENTS_MAX];
};

/* Makes a part without index and segments. */
void part_init(struct part *part);
/* Writes the part's keys into the open map. Sets ret_fds to the descriptors that go with the
 * message, in their order, and returns their number. The part keeps them. */
size_t part_write(struct message_writer *w, const struct part *part, int ret_fds[PACKET_FDS_MAX]);
/* Reads the keys of a part, and takes its descriptors out of the packet. Returns 0. Fails with
 * -EINVAL if a key is missing or there are more than PART_SEGMENTS_MAX segments, and with -EBADMSG
 * if a descriptor did not come along; f has the error too. In any case *ret owns the descriptors
 * that were taken. */
int part_read(struct fields *f, struct packet *packet, struct part *ret);
/* The same for segments alone: the key `segments`, whose descriptors are the first of the message. The part
 * that is read has no index. */
size_t part_segments_write(struct message_writer *w, const struct part *part, int ret_fds[PACKET_FDS_MAX]);
int part_segments_read(struct fields *f, struct packet *packet, struct part *ret);
/* Closes the descriptors. The part has none afterwards. */
void part_close(struct part *part);

#endif
