/* The digests of the ranks' tensors while a source is cut. Threads bring the bytes of a tensor in
 * ranges that may begin and end inside of a word of the digest: such words are put together here. */
#ifndef GPUWM_LOADER_SHARE_SUMS_H
#define GPUWM_LOADER_SHARE_SUMS_H

#include "cut.h"

#include "../../proto/index/digest.h"

#include <pthread.h>

struct share_word;

struct share_sums {
	const struct cut *cut;
	struct digest_sum *sums; /* one for each share; atomic */
	pthread_mutex_t lock; /* guards what follows */
	struct share_word *words; /* those that are not whole yet: few, since ranges come in order */
	size_t word_count, word_room;
};

/* Returns 0. Fails with -ENOMEM. The cut must outlive the sums. */
int share_sums_make(const struct cut *cut, struct share_sums *ret, struct error *error);
/* Frees everything. Zeroed sums are fine. */
void share_sums_clear(struct share_sums *sums);

/* Adds a range of the share's bytes, which lie at `data`. The caller adds each byte once. Returns 0.
 * Fails with -ENOMEM. Threads: any number at the same time. */
int share_sums_add(struct share_sums *sums, uint32_t share, uint64_t offset, const void *data, size_t bytes,
		   struct error *error);
/* Returns the digest of a share, of which every byte was added. */
struct digest share_sums_final(const struct share_sums *sums, uint32_t share);

#endif
