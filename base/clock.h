/* The monotonic clock: durations, and deadlines in milliseconds. */
#ifndef GPUWM_LIB_CLOCK_H
#define GPUWM_LIB_CLOCK_H

#include <pthread.h>
#include <stdint.h>

int64_t clock_ms(void);
double clock_seconds(void);
/* Milliseconds since the machine's start, which all its processes count alike. */
uint64_t clock_boot_ms(void);
/* Returns when a wait of wait_ms ends; -1 (for ever) stays -1. */
int64_t clock_deadline(int64_t wait_ms);
/* Returns the later of two deadlines. */
int64_t clock_later(int64_t a, int64_t b);
/* Returns the earlier of two deadlines. */
int64_t clock_earlier(int64_t a, int64_t b);
/* Returns the time until then as poll(2) takes it: -1: for ever; 0: the deadline has passed. */
int clock_left(int64_t deadline);

/* Makes a condition whose waits end by this clock. */
void clock_condition(pthread_cond_t *condition);
/* Waits until the condition is signalled, or until the deadline. */
void clock_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline);

#endif
