/* When a program that ended is started again. It never gives up: giving up would free the store. */
#ifndef GPUWM_KEEPER_RESTART_H
#define GPUWM_KEEPER_RESTART_H

#include <stdint.h>

/* The delays: at once, so that a single crash costs a millisecond; then this, doubled with each start
 * that came to nothing, up to the longest. A start of gpuwmd costs some 10 ms of a core and, by its
 * loader, a cuInit of 0.1 to 0.2 s: with 100 ms the second try takes no core for itself. */
#define RESTART_DELAY_MS 100
/* The longest delay by default: whoever has mended the cause waits no longer than this, and the
 * machine sees one cuInit in five seconds. */
#define RESTART_DELAY_MAX_MS 5000

struct restart {
	uint64_t max_ms;
	uint64_t next_ms;
};

/* The delay before the next start, after a run that had been ready for this long (0: it never was). A
 * run that was ready for longer than the longest delay begins the series anew. */
uint64_t restart_delay(struct restart *restart, uint64_t ready_ms);
/* The series begins anew. */
void restart_reset(struct restart *restart);

#endif
