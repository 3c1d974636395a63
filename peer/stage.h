/* The memory in which the sender's messages lie while they are on their way.
 *
 *   host memory             where it is
 *   a GPU, and the wire     a buffer of this process on the same GPU, into which the GPU copies: UCX has to pass memory on to the receiver, and
 *   carries its memory      memory that was attached can't be passed on a second time. Copied within a GPU, a message of 64 MiB takes 40 us
 *   a GPU, and it does not  a pinned buffer of the host */
#ifndef GPUWM_PEER_STAGE_H
#define GPUWM_PEER_STAGE_H

#include "wire.h"

#include "../memory/memory.h"
#include "../base/errors.h"

#include <stddef.h>

/* Messages that are on their way at a time. Two keep a line busy; a few more hide the latency of RDMA. */
#define STAGE_PLACES_MAX 8
/* Of these, on a GPU: each takes 64 MiB of it. */
#define STAGE_PLACES_GPU 4

struct stage;

/* bytes: of the largest message. The caller is inside the device's context until stage_free, and closes the wire before stage_free. Returns 0
 * and sets *ret. Fails with -ENOMEM. */
int stage_new(const struct memory_device *device, struct wire *wire, size_t bytes, struct stage **ret,
	      struct error *error);
/* Frees the stage. No message may be on its way. NULL is fine. Returns NULL. */
struct stage *stage_free(struct stage *stage);

unsigned stage_places(const struct stage *stage);
enum wire_memory stage_memory(const struct stage *stage);
/* Puts a message into a place that no message on its way uses. Returns 0 and sets *ret to the message's address. Fails with -ENOMEM and
 * -EIO. */
int stage_put(struct stage *stage, unsigned place, const void *data, size_t bytes, void **ret,
	      struct error *error);

#endif
