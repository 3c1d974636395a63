/* The clocks. */
#ifndef GPUWM_DAEMON_CLOCK_H
#define GPUWM_DAEMON_CLOCK_H

#include <stdint.h>

/* Returns the time since 1970, for people and clients. */
uint64_t clock_wall_ms(void);
/* Return the time of a clock that never goes back, for durations. */
uint64_t clock_steady_ms(void);
uint64_t clock_steady_ns(void);
/* Returns the time since the machine began, for what other processes tell by CLOCK_BOOTTIME. */
uint64_t clock_boot_ms(void);
/* Returns how long it is until then by the steady clock, for something that a timer ends by setting `until` to 0. Only an `until` of
 * 0 gives 0. */
uint64_t clock_left_ms(uint64_t until);

#endif
