/* What the loader needs of a publish beyond the public calls. It publishes through the library, but checks and hands in its
 * segments itself. */
#ifndef GPUWM_LIB_PUBLISH_H
#define GPUWM_LIB_PUBLISH_H

#include "../../../include/gpuwm/client.h"
#include "../../../proto/index/digest.h"
#include "../../../proto/wire/part.h"
#include "../../../memory/memory.h"
#include "../plan.h"

/* A part that is filled, sealed and indexed, ready to be handed in. */
struct publish_part {
	int index_fd;
	uint64_t index_bytes;
	struct digest layout, content;
	uint64_t tensors;
	uint32_t rank;
	uint32_t segment_count;
	struct memory_segment *segments; /* exported: fd is set */
};

/* Lists the descriptors of a sealed part, which keeps them. */
void publish_part_list(const struct publish_part *sealed, struct part *ret);

/* As gpuwm_publish_begin, but it needs no CUDA context and does not zero GPU memory. Before the publish is sealed, the caller writes
 * every tensor, and has zeroed the gaps. */
int publish_begin_bare(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
		       const struct gpuwm_tensor_spec *specs, size_t count, struct gpuwm_publish **ret_publish);

/* Zeroes everything that no tensor covers, and small tensors between. Call it before tensors are written, inside memory_enter. */
int publish_zero_gaps(struct gpuwm_publish *publish, struct error *error);

/* The number that gpuwmd gave the publish. */
const struct version_id *publish_number(const struct gpuwm_publish *publish);
const struct plan *publish_plan(const struct gpuwm_publish *publish);
const struct memory_device *publish_device(const struct gpuwm_publish *publish);
/* Returns the segment at this position, which is mapped for writing. */
struct memory_segment *publish_segment(struct gpuwm_publish *publish, uint32_t position);

/* Sets the digest of the tensor at this position, if the caller knows it. Commit computes the digests that were not set. */
void publish_digest(struct gpuwm_publish *publish, size_t position, const struct digest *digest);

/* Waits for the device, computes the digests that are missing, unmaps the segments, seals or exports them, and builds the index. Sets
 * *ret_part, which belongs to the publish. */
int publish_seal(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		 const struct publish_part **ret_part, struct error *error);

/* Gives up the memory of one segment of a sealed part, whose place another version's segment takes. */
void publish_release_segment(struct gpuwm_publish *publish, uint32_t position);

/* Frees the publish without telling gpuwmd, which learns the result from the loader. Returns NULL. */
struct gpuwm_publish *publish_free(struct gpuwm_publish *publish);

#endif
