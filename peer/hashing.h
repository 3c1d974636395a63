/* The sums of one part's pieces: computed once, in the order of its segments, while others wait for the first of them. */
#ifndef GPUWM_PEER_HASHING_H
#define GPUWM_PEER_HASHING_H

#include "serve.h"

struct hashing;

/* Makes the room for the sums of a part. Returns NULL if there is no memory. */
struct hashing *hashing_new(const struct served_part *part, unsigned threads);
/* NULL is fine. Nothing may run any more. Returns NULL. */
struct hashing *hashing_free(struct hashing *hashing);

/* Computes what is not there yet, if nobody does, in a thread that reads the part; the part stays mapped until hashing_stop.
 * Returns how many sums of pieces->segment are known from pieces->first on, and waits for the first one for wait_ms. Fails with
 * -ETIMEDOUT, and with the reason why computing ended. Threads: any. */
int64_t hashing_wait(struct hashing *hashing, const struct served_part *part,
		     const struct served_pieces *pieces, uint64_t wait_ms, const struct sum **ret_sums,
		     struct error *error);
/* Computes the part's sum. Returns 0 and sets *ret. Fails with -EAGAIN if not all sums of its pieces are known yet, and with -ENOMEM. */
int hashing_part(struct hashing *hashing, const struct served_part *part, struct sum *ret);
/* Ends the thread, if there is one: the part may be unmapped. What is known stays known. */
void hashing_stop(struct hashing *hashing);

#endif
