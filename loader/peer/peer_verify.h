/* Threads that compare the pieces which came with their sums. The right ones are here then, the others are missing again. */
#ifndef GPUWM_LOADER_PEER_VERIFY_H
#define GPUWM_LOADER_PEER_VERIFY_H

#include "peer_part.h"

#include <stdatomic.h>

/* Some pieces that came. */
struct peer_arrival {
	struct peer_run run;
	/* Where they are: a buffer, from which the right ones are written to the part's memory. NULL: there already. */
	const void *buffer;
	atomic_bool *busy; /* set to false when the buffer is free again; NULL: nobody asks */
};

struct peer_verify;

/* Begins `threads` threads, or fewer if there can't be as many, but at least one. With in_place, no arrival has a buffer: if the device has a
 * kernel for it, one thread has it hash all that has arrived. The part outlives them. The caller is inside memory_enter, until
 * peer_verify_end. Returns 0 and sets *ret. Fails with -ENOMEM, -EAGAIN and -EIO. */
int peer_verify_begin(struct taken_part *part, unsigned threads, bool in_place, struct peer_verify **ret,
		      struct error *error);
/* Passes pieces on, which were claimed. Fails with -ENOMEM. */
int peer_verify_add(struct peer_verify *verify, const struct peer_arrival *arrival, struct error *error);
/* Returns how many pieces are waiting or being compared. */
uint64_t peer_verify_pending(struct peer_verify *verify);
/* Returns how many pieces were wrong since the last call. */
uint64_t peer_verify_wrong(struct peer_verify *verify);
/* Returns 0, or the code of the first error of a thread: the memory could not be read or written. */
int peer_verify_failed(struct peer_verify *verify, struct error *error);
/* Waits for what is pending, and ends the threads. verify may be NULL. Returns NULL. */
struct peer_verify *peer_verify_end(struct peer_verify *verify);

#endif
