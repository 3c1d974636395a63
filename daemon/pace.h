/* How often something happens for a uid: token buckets, one for each uid and kind. A bucket that is full again, and
 * whose count of refusals was asked for, is forgotten, so the table holds those who were there in the last seconds. */
#ifndef GPUWM_DAEMON_PACE_H
#define GPUWM_DAEMON_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* `burst` at once, and `per_second` in the long run; at least 1 each. */
struct pace_rate {
	uint64_t burst, per_second;
};

struct pace; /* opaque: a table */

/* NULL: out of memory. */
struct pace *pace_new(void);
uint64_t pace_count(const struct pace *pace);
/* NULL is fine. */
struct pace *pace_free(struct pace *pace);

/* Takes a token. False: there is none, and `withheld` of the bucket goes up. Without memory for a new bucket there is
 * always one. */
bool pace_take(struct pace *pace, uid_t uid, unsigned kind, struct pace_rate rate, uint64_t now_ms);
/* How often pace_take refused this uid since the last call, which sets it to 0. */
uint64_t pace_withheld(struct pace *pace, uid_t uid, unsigned kind);
/* Any bucket that withheld something; false: none did. */
bool pace_next_withheld(const struct pace *pace, uid_t *ret_uid, unsigned *ret_kind);

#endif
