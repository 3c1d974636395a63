/* The inside of a load, which its steps share. load.c has their order. load_copy.c has the copy,
 * and what the copy waits for. */
#ifndef GPUWM_LOADER_LOAD_INTERNAL_H
#define GPUWM_LOADER_LOAD_INTERNAL_H

#include "copy/copy.h"
#include "cut/cut.h"
#include "files/roots.h"
#include "jobs.h"

#include "../client/lib/publish/publish.h"
#include "../proto/wire/part.h"

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
	const struct job_load_params *params;
	const struct roots *roots;
	int files; /* the socket that the files come from; -1: they have paths */
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

/* Gives a part the metadata of all files of its rank, and the plan of a cut. If files differ, the first one that has the key
 * counts, and a note names the key and both files. Returns 0. Fails with any error of a publish. (load_texts.c) */
int load_add_texts(struct load *load, const struct load_part *part);
/* Takes over the library's error of this thread. Returns `code`. (load.c) */
int load_library_failed(struct load *load, int code);

/* Begins the publish of each part: afterwards its memory is there and mapped. Returns 0. Fails with
 * any error of a publish, with -ECANCELED, and with -ECONNRESET. */
int load_begin_all(struct load *load);
/* Copies all ranks: of a cut at once, else one after the other. The first readers begin while load_begin_all runs and
 * contexts are made.
 * Returns 0. Fails with the same codes, and with those of copy_run. */
int load_copy_all(struct load *load);

/* ---- sharing (share.c) ----
 *
 * Sharing: a load that gives up its own memory where a resident version has the same bytes. */

/* Which segments a part of the new version shares with the part that the resident version has for the same rank and device. */
struct share {
	struct part resident; /* owned; its descriptors are those that gpuwmd holds */
	int from[PART_SEGMENTS_MAX]; /* of each own segment: the resident one that takes its place; -1: none */
	uint32_t count; /* segments that are shared */
	uint64_t bytes; /* and their bytes */
};

/* A part that is filled and sealed. */
struct share_part {
	const char *device;
	uint32_t rank;
	struct gpuwm_publish *publish;
	const struct publish_part *sealed;
	const struct gpuwm_tensor_spec *specs; /* of the part's tensors, with their digests */
	const struct digest *digests;
	size_t tensor_count;
};

/* Asks gpuwmd for the resident part, and compares with it. Digests say which segments are worth it, but only bytes make a
 * segment equal. Gives up the own memory of equal segments, one after the other. A note tells what is shared, and why the rest
 * is not.
 *
 * Returns 0 and sets *ret, for share_free; NULL: nothing is shared, because the version has no such part. Fails with the codes of
 * memory, and with -ECANCELED and -ECONNRESET (see work_stopped). */
int share_run(struct work *work, const char *with, const struct share_part *part, struct share **ret,
	      struct error *error);
/* Closes the resident descriptors. Returns NULL; NULL is fine. */
struct share *share_free(struct share *share);
/* Puts the resident descriptors in place of those that were given up. The share keeps them. */
void share_list(const struct share *share, struct part *list);

#endif
