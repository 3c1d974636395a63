/* The two clocks, in milliseconds. */
#ifndef GPUWM_DAEMON_CLOCK_H
#define GPUWM_DAEMON_CLOCK_H

#include <stdint.h>

/* Since 1970: what is told to people and clients. */
uint64_t clock_wall_ms(void);
/* Never goes back: what durations are measured with. */
uint64_t clock_steady_ms(void);

#endif
