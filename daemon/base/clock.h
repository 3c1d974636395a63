/* The two clocks. */
#ifndef GPUWM_DAEMON_CLOCK_H
#define GPUWM_DAEMON_CLOCK_H

#include <stdint.h>

/* Since 1970: what is told to people and clients. */
uint64_t clock_wall_ms(void);
/* Never goes back: what durations are measured with. */
uint64_t clock_steady_ms(void);
uint64_t clock_steady_ns(void);
/* What is left until then (steady), for what a timer ends: 0 only when it has, by setting `until` to 0. */
uint64_t clock_left_ms(uint64_t until);

#endif
