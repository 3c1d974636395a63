/* The inside of a load: what its steps share. load.c is their order, load_copy.c the copy, with what it waits for. */
#ifndef GPUWM_LOADER_LOAD_INTERNAL_H
#define GPUWM_LOADER_LOAD_INTERNAL_H

#include "copy.h"
#include "load.h"

#include "../client/lib/publish.h"

/* One part of the version: a rank on a device. */
struct part {
	const char *device;
	uint32_t rank;
	struct gpuwm_publish *publish;
	void **addresses; /* of each tensor of the rank */
	const struct publish_part *sealed; /* once it is */
};

struct load {
	const struct job *job;
	struct work *work;
	struct prepare *prepare; /* NULL: no GPUs */
	struct gpuwm_client *client;
	struct source source;
	struct gpuwm_tensor_spec *specs; /* of all tensors, as the source has them */
	struct digest *digests;
	struct part parts[PARTS_PER_VERSION_MAX]; /* a rank's are neighbours */
	size_t part_count;
	bool ready; /* the copy can begin */
	struct copy_report copied;
	struct error *error;
};

static inline const struct source_rank *rank_of(const struct load *load, const struct part *part)
{
	return &load->source.ranks[part->rank];
}

/* Begins the publish of each part: its memory is there, and mapped. Any error of a publish, -ECANCELED, -ECONNRESET. */
int load_begin_all(struct load *load);
/* Copies all ranks, the first one while load_begin_all and contexts take their time. The same, and those of copy_run. */
int load_copy_all(struct load *load);

#endif
