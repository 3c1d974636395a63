/* How much an idle stack holds: after each round it is as much as before the first. */
#ifndef GPUWM_FAULTS_FIGURES_H
#define GPUWM_FAULTS_FIGURES_H

#include "stack.h"

enum figure {
	/* Of `status`; what is looked at is the one session. */
	FIGURE_LEASES,
	FIGURE_PUBLISHES,
	FIGURE_WAITING,
	FIGURE_SESSIONS,
	FIGURE_JOBS,
	FIGURE_STANDBY,
	FIGURE_LOADERS,
	FIGURE_KEEPER_CHILDREN,
	FIGURE_GPUWMD_CHILDREN,
	/* Descriptors, without those of versions that are listed; entries of the folder. */
	FIGURE_KEEPER_FDS,
	FIGURE_GPUWMD_FDS,
	FIGURE_FILES,
	FIGURE_COUNT
};

struct figures {
	uint64_t of[FIGURE_COUNT];
};

/* False: gpuwmd did not answer. */
bool figures_take(struct figures *ret, const struct stack *s);
/* True where all are as they are to be in any idle stack, as far as that is known. */
bool figures_idle(const struct figures *figures);
/* False: ret_why names those that differ. */
bool figures_equal(const struct figures *figures, const struct figures *base, char *ret_why, size_t size);

#endif
