/* The clocks. Steady: it never goes back, and stands still while the machine sleeps; for durations and deadlines. Boot: the same, and
 * goes on while it sleeps; all processes of a machine count it alike. Wall: since 1970; it may jump.
 *
 * Times are unsigned, as in messages, records and shared memory, where most of them stand: no time is negative, and 0 is none.
 * Deadlines are signed, as the waits of poll(2) and of the library's calls: -1 is for ever. */
#ifndef GPUWM_BASE_CLOCK_H
#define GPUWM_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

uint64_t clock_steady_ms(void);
uint64_t clock_steady_us(void);
uint64_t clock_steady_ns(void);
double clock_steady_seconds(void);
uint64_t clock_boot_ms(void);
uint64_t clock_wall_ms(void);

/* ---- deadlines: milliseconds of the steady clock ---- */

/* Returns when a wait of wait_ms ends; -1 (for ever) stays -1. */
int64_t clock_deadline(int64_t wait_ms);
/* Returns the later of two deadlines. */
int64_t clock_later(int64_t a, int64_t b);
/* Returns the earlier of two deadlines. */
int64_t clock_earlier(int64_t a, int64_t b);
/* Returns the time until then: -1: for ever; 0: the deadline has passed. */
int64_t clock_until(int64_t deadline);
/* The same as poll(2) takes it: at most INT_MAX, 24.8 days. Who waits looks at the deadline again. */
int clock_left(int64_t deadline);

/* Makes a condition whose waits end by the steady clock. */
void clock_condition(pthread_cond_t *condition);
/* Waits until the condition is signalled, or until the deadline. */
void clock_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline);

/* ---- timers ---- */

/* Returns how long it is until due_ms by the steady clock, for something that a timer ends by setting due_ms to 0. Only a due_ms of 0
 * gives 0. */
uint64_t clock_due_in_ms(uint64_t due_ms);

#endif
