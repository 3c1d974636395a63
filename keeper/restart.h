/* When to start a program again that has ended. The keeper never gives up: giving up would free the
 * store. */
#ifndef GPUWM_KEEPER_RESTART_H
#define GPUWM_KEEPER_RESTART_H

#include <stdint.h>

/* The first start again comes at once, so that a single crash costs a millisecond. After that the
 * delay is this time, doubled with each start that came to nothing, up to the longest delay. A
 * start of gpuwmd costs some 10 ms of a core and, by its loader, a cuInit of 0.1 to 0.2 s: with 100
 * ms the second try does not fill a core. */
#define RESTART_DELAY_MS 100
/* The longest delay by default. Whoever has removed the cause waits no longer than this, and the
 * machine sees one cuInit in five seconds. */
#define RESTART_DELAY_MAX_MS 5000

struct restart {
	uint64_t max_ms;
	uint64_t next_ms;
};

/* Returns the delay before the next start, after a run that was ready for ready_ms (0: it never
 * was). After a run that was ready for longer than the longest delay, the series begins anew. */
uint64_t restart_delay(struct restart *restart, uint64_t ready_ms);
/* Begins the series anew. */
void restart_reset(struct restart *restart);

#endif
