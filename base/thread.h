/* The library's own threads. */
#ifndef GPUWM_LIB_THREAD_H
#define GPUWM_LIB_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Begins a thread that takes no signals of the program, except faults of its own. Its stack has `stack_bytes` besides what the C library
 * and the program's thread-local data take. Returns 0 or an errno. */
int thread_begin(pthread_t *ret, size_t stack_bytes, void *(*function)(void *data), void *data);

#endif
