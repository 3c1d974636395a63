/* The inside of a load, which its steps share. load.c has their order. load_copy.c has the copy,
 * and what the copy waits for. */
#ifndef GPUWM_LOADER_LOAD_INTERNAL_H
#define GPUWM_LOADER_LOAD_INTERNAL_H

#include "copy/copy.h"
#include "cut/cut.h"
#include "files/roots.h"
#include "load.h"
#include "share.h"

#include "../client/lib/publish/publish.h"

/* One part of the version: a rank on a device. */
struct load_part {
	const char *device;
	uint32_t rank;
	struct gpuwm_publish *publish;
	void **addresses; /* one for each tensor of the rank */
	const struct publish_part *sealed; /* NULL until the part is sealed */
	struct share *share; /* owned; NULL: nothing is shared */
};

struct load {
	const struct job *job;
	struct work *work;
	struct prepare *prepare; /* NULL: there are no GPUs */
	struct gpuwm_client *client;
	struct handed handed; /* the files of the source, until it is open, if they come as descriptors */
	struct source source;
	struct cut cut; /* if the job has a plan */
	/* those of the source or of the cut */
	struct source_rank *ranks;
	uint32_t world;
	uint64_t bytes; /* of all ranks */
	struct gpuwm_tensor_spec *specs; /* of all ranks' tensors: of the source's, or of the cut's shares */
	struct digest *digests;
	struct load_part parts[PARTS_PER_VERSION_MAX]; /* the parts of a rank are neighbours */
	size_t part_count;
	bool ready; /* the copy can begin */
	struct copy_report copied;
	struct error *error;
};

static inline const struct source_rank *rank_of(const struct load *load, const struct load_part *part)
{
	return &load->ranks[part->rank];
}

/* Cuts the source, if the job has a plan, and makes the ranks with their specs. Returns 0. Fails
 * with the codes of cut_make, with -EFBIG if there are too many ranks, and with -ENOMEM. */
int load_make_ranks(struct load *load);
void load_clear_ranks(struct load *load);

/* Begins the publish of each part: afterwards its memory is there and mapped. Returns 0. Fails with
 * any error of a publish, with -ECANCELED, and with -ECONNRESET. */
int load_begin_all(struct load *load);
/* Copies all ranks: of a cut at once, else one after the other. The first readers begin while load_begin_all runs and
 * contexts are made.
 * Returns 0. Fails with the same codes, and with those of copy_run. */
int load_copy_all(struct load *load);

#endif
