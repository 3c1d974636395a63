/* What the loader needs of a publish beyond the public calls: it publishes
 * through the library, but checks and hands in by itself. */
#ifndef GPUWM_LIB_PUBLISH_H
#define GPUWM_LIB_PUBLISH_H

#include "../../include/gpuwm/client.h"
#include "../../proto/digest.h"
#include "memory.h"
#include "plan.h"

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

/* As gpuwm_publish_begin, but nothing of it needs a context, and GPU memory is not zeroed:
 * before it is sealed the caller writes every tensor and has zeroed the gaps. */
int publish_begin_bare(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
		       const struct gpuwm_tensor_spec *specs, size_t count, struct gpuwm_publish **ret_publish);

/* Zeroes all that no tensor covers, and what small tensors lie between: before they are written. Inside
 * memory_enter. */
int publish_zero_gaps(struct gpuwm_publish *publish, struct error *error);

const struct plan *publish_plan(const struct gpuwm_publish *publish);
const struct memory_device *publish_device(const struct gpuwm_publish *publish);
/* Segment `position`, mapped for writing. */
struct memory_segment *publish_segment(struct gpuwm_publish *publish, uint32_t position);

/* The digest of tensor `position`, when the filler has it already; commit
 * computes those that were not given. */
void publish_digest(struct gpuwm_publish *publish, size_t position, const struct digest *digest);

/* Waits for the device, digests what is missing, unmaps, seals or exports,
 * builds the index. The part belongs to the publish until it is freed. */
int publish_seal(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		 const struct publish_part **ret_part, struct error *error);

/* Frees without a word to the daemon (the loader's connection says the rest). */
struct gpuwm_publish *publish_free(struct gpuwm_publish *publish);

#endif
