/* Brings back the versions that were resident (version->restores), after a start that has lost all memory, as far as budgets allow. It
 * promotes a few versions at a time, in the order of need. Loads of operators go before all of them. */
#ifndef GPUWM_DAEMON_RESTORE_H
#define GPUWM_DAEMON_RESTORE_H

#include "../../../base/errors.h"

#include <stdbool.h>
#include <stdint.h>

struct version;
struct work;

/* How far the restoring is. */
struct restore {
	bool left; /* some versions are not back yet */
	uint64_t described; /* versions that the folder of descriptions had at the start */
	uint64_t total; /* versions from the folder and from the state that were resident */
	uint64_t done, failed; /* of these: promoted again, or given up */
};

/* Begins to restore. gpuwmd calls it when it begins to serve. `described` versions came from the folder. */
void restore_begin(struct work *work, uint64_t described);
/* Notes which versions are back or could not be promoted, and begins the next promotions. The loop calls it before it sleeps. */
void restore_settle(struct work *work);
#endif
