/* The text of a cut plan: rules that say which rank gets what of which tensors. docs/protocol.md
 * ("Cut plans") has its form. */
#ifndef GPUWM_LOADER_CUT_PLAN_H
#define GPUWM_LOADER_CUT_PLAN_H

#include "../../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cut_action { CUT_SPLIT, CUT_COPY, CUT_RANK };

struct cut_rule {
	const char *glob;
	enum cut_action action;
	uint32_t number; /* the dimension of CUT_SPLIT, the rank of CUT_RANK */
	bool optional; /* it may match no tensor */
	unsigned line; /* counted from 1 */
};

struct cut_plan {
	struct cut_rule *rules; /* at least 1, at most CUT_RULES_MAX */
	size_t count;
	char *text; /* the globs point into this memory */
};

/* Reads a plan. Returns 0 and sets *ret, for cut_plan_clear. Fails with -EINVAL if the text is no
 * plan (the message names the line), and with -ENOMEM. */
int cut_plan_parse(const char *text, struct cut_plan *ret, struct error *error);
/* Frees everything. A zeroed plan is fine. */
void cut_plan_clear(struct cut_plan *plan);

/* Finds the one rule that matches the name. Returns 0 and sets *ret to its position. Fails with
 * -EINVAL if no rule does, or more than one; the message names the tensor and the lines. */
int cut_plan_find(const struct cut_plan *plan, const char *name, size_t *ret, struct error *error);

#endif
