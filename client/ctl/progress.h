/* Progress of a job on stderr: on a terminal one line that is redrawn (phase, bytes, share, rate, time
 * left), else one line a phase, and one now and then while a phase takes long. */
#ifndef GPUWM_CTL_PROGRESS_H
#define GPUWM_CTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	unsigned columns; /* of the terminal; 0: there is none */
	bool drawn;
	char phase[256]; /* a terminal's line has the beginning of it */
	uint64_t done, total; /* total 0: not known */
	uint64_t phase_start_ns, phase_start_done; /* the rate is that of the phase */
	uint64_t moved_ns, told_ns;
};

/* Between two calls of progress_tick at most: a clock on the screen goes on. */
#define PROGRESS_TICK_MS 1000

/* columns: of the terminal that stderr is, which no line is wider than; 0: it is none. */
void progress_start(struct progress *progress, unsigned columns);
/* What the functions below take as now_ns, but for tests: nanoseconds of a clock that only goes forward. */
uint64_t progress_clock_ns(void);
/* total 0: not known. */
void progress_update(struct progress *progress, const char *phase, uint64_t done, uint64_t total,
		     uint64_t now_ns);
/* Time passes: shows that it goes on. */
void progress_tick(struct progress *progress, uint64_t now_ns);
/* Leaves the cursor at the beginning of a line. */
void progress_end(struct progress *progress);

#endif
