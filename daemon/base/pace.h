/* Limits how often something happens for a uid: a token bucket for each uid and kind. A table forgets a bucket that is full again,
 * so it holds the users of the last seconds. A table that counts refusals keeps a bucket until its count was read. */
#ifndef GPUWM_DAEMON_PACE_H
#define GPUWM_DAEMON_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How many at once, and how many a second in the long run; at least 1 each. */
struct pace_rate {
	uint64_t burst, per_second;
};

struct pace; /* opaque: a table */

/* Makes an empty table. NULL: out of memory. If `counts` is set, pace_withheld must be called for each bucket that
 * refused, or the bucket stays for ever. */
struct pace *pace_new(bool counts);
uint64_t pace_count(const struct pace *pace);
/* NULL is fine. */
struct pace *pace_free(struct pace *pace);

/* Takes a token. Returns false if the bucket has none. If there is no memory for a new bucket, returns true. */
bool pace_take(struct pace *pace, uid_t uid, unsigned kind, struct pace_rate rate, uint64_t now_ms);
/* Returns how often pace_take has refused this uid and kind since the last call of pace_withheld. Only for a table that
 * counts. */
uint64_t pace_withheld(struct pace *pace, uid_t uid, unsigned kind);
/* Sets the uid and kind of any bucket whose refusals were not read yet. Returns false if there is none. */
bool pace_next_withheld(const struct pace *pace, uid_t *ret_uid, unsigned *ret_kind);

#endif
