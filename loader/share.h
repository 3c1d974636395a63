/* Sharing: a load that gives up its own memory where a resident version has the same bytes. */
#ifndef GPUWM_LOADER_SHARE_H
#define GPUWM_LOADER_SHARE_H

#include "job.h"

#include "../client/lib/publish/publish.h"
#include "../proto/wire/part.h"

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
