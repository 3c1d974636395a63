/* What happened between two answers of `metrics`. */
#ifndef GPUWM_CTL_TOP_RATES_H
#define GPUWM_CTL_TOP_RATES_H

#include <jansson.h>
#include <stdbool.h>

struct rates {
	double attaches, requests, refused; /* a second */
	double p50_us, p99_us; /* of attaches; negative: there were none */
};

/* before NULL: since gpuwmd's start, which was `seconds` ago. A `before` of another gpuwmd must not be passed. */
void rates_of(const json_t *before, const json_t *now, double seconds, struct rates *ret);
/* Whether both are of one gpuwmd. */
bool rates_fit(const json_t *before, const json_t *now);

#endif
