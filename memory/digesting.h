/* One call of memory_digests while it runs. memory_digest.c has the CPU's part, memory_kernel.c the GPU's; both take
 * their next bytes here, tell the caller of progress, and pause as the caller asked. */
#ifndef GPUWM_LIB_DIGESTING_H
#define GPUWM_LIB_DIGESTING_H

#include "memory.h"

/* What was found of one span so far. Threads add to it atomically. */
struct tally {
	struct digest_sum sum;
	uint64_t bits; /* 0: only zeros so far */
};

/* One call of memory_digests. */
struct digesting {
	const struct memory_device *device;
	const struct memory_span *spans;
	size_t count;
	uint64_t bytes; /* of all spans */
	const struct memory_pace *pace; /* NULL: as fast as it goes */
	memory_progress_fn *progress; /* may be NULL */
	void *user_data;
	struct tally *tallies; /* one a span */
	struct memory_report report;
	struct error *error;
	/* The next bytes to be taken. */
	size_t span;
	uint64_t offset;
};

/* What digest_take took: consecutive bytes of one span. */
struct digest_part {
	size_t span;
	uint64_t offset, bytes; /* offset: a multiple of 16 */
};

/* Takes the next bytes, `most` (16 or more) at most; spans without any are passed over. False: none are left. */
bool digest_take(struct digesting *work, uint64_t most, struct digest_part *ret);

/* Tells that so many bytes are done. 0, or -ECANCELED with the error set. */
int digest_tell(struct digesting *work, uint64_t bytes);

/* Rests as the pace asks after `busy` seconds of work, looking for a stop meanwhile. 0 or -ECANCELED. */
int digest_rest(struct digesting *work, double busy);

#endif
