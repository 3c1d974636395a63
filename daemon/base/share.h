/* How operators and users share what there is a fixed number of: the one rule for every table of gpuwmd.
 *
 *   - Operators may always use an eighth.
 *   - A user may hold at most half of what is left without that eighth and without what others hold. So one user alone gets 7/16 of the
 *     table, the next one half of that, and so on, and none ever finds it full.
 *   - If operators hold more than their eighth, that counts in its place.
 *   - A key of the configuration may stand for the half. It never takes from the eighth.
 *   - What somebody holds stays, also if it is more than the rule gives now: only more is refused. */
#ifndef GPUWM_DAEMON_SHARE_H
#define GPUWM_DAEMON_SHARE_H

#include "../../base/errors.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHARE_RESERVED 8 /* operators' part: an eighth */
#define SHARE_PERCENT 50 /* of what is left, for one user */
#define SHARE_NONE UINT64_MAX /* no limit */

/* A table. */
struct share_table {
	uint64_t all; /* 0: nobody shares it, and only `most` counts */
	uint64_t most; /* of one user, in place of the half. SHARE_NONE: the half counts */
	unsigned percent; /* the half; 0: SHARE_PERCENT */
	bool in_bytes;
	const char *noun; /* "versions" */
	const char *key; /* of [limits], for the remedy. NULL: there is none */
	const char *remedy; /* what gives room back. NULL: what there is of this user */
	const char *others; /* who else holds some. NULL: "other users" */
};

/* What is held of it. */
struct share_held {
	uint64_t own; /* by the user who asks */
	uint64_t operators, others;
};

/* Returns how many of `all` are operators'. */
uint64_t share_reserved(uint64_t all);
/* Returns how many the user may hold now. */
uint64_t share_most(const struct share_table *table, const struct share_held *held);
/* Returns how many one user may hold if nobody else holds any. */
uint64_t share_alone(const struct share_table *table);
/* Returns whether the user may have `more`. Nothing always fits. */
bool share_fits(const struct share_table *table, const struct share_held *held, uint64_t more);
/* Sets the error, and returns -EDQUOT: the limit, what the user has, what others hold, and the remedy. */
int share_refuse(const struct share_table *table, const struct share_held *held, uid_t uid, uint64_t more,
		 struct error *error);
/* The same if `more` does not fit; else 0. */
int share_check(const struct share_table *table, const struct share_held *held, uid_t uid, uint64_t more,
		struct error *error);

/* Writes "5" or "12.0 GiB". Returns the text. */
#define SHARE_FIGURE 24 /* the digits of 64 bits, or what bytes_format writes */
const char *share_figure(const struct share_table *table, uint64_t amount, char text[SHARE_FIGURE]);

#endif
