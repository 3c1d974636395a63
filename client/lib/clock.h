/* The monotonic clock: durations, and deadlines in milliseconds. */
#ifndef GPUWM_LIB_CLOCK_H
#define GPUWM_LIB_CLOCK_H

#include <pthread.h>
#include <stdint.h>

int64_t clock_ms(void);
double clock_seconds(void);
/* When a wait of wait_ms ends; -1 (for ever) stays -1. */
int64_t clock_deadline(int64_t wait_ms);
/* The later of two deadlines. */
int64_t clock_later(int64_t a, int64_t b);
/* What is left, as poll(2) takes it: -1 for ever, 0 when it has passed. */
int clock_left(int64_t deadline);

/* A condition whose waits end by this clock. */
void clock_condition(pthread_cond_t *condition);
/* Until it is signalled, or until the deadline at most. */
void clock_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline);

#endif
