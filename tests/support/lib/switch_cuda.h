/* Two versions of m on a GPU, v1 and v2, of one layout and filled with 1 and 2: on tests/fakecuda, whose calls are
 * logged and fail where a test says, or on a real one. */
#ifndef GPUWM_TESTS_LIB_SWITCH_CUDA_H
#define GPUWM_TESTS_LIB_SWITCH_CUDA_H

#ifdef GPUWM_CUDA

#include "memory/cuda.h"
#include "memory/memory.h"
#include "tests/support/lib/client.h"
#include "tests/support/lib/versions.h"

/* Fixtures of a suite. need_driver skips its tests where there is no driver; otherwise the stand-in logs its calls, and so
 * does `fake` once it runs. forget_calls removes the log. */
void need_driver(void);
void forget_calls(void);
/* Skips a test on a real driver, which fails when it likes and does not tell what it was asked. */
void need_fakecuda(void);

/* Starts `fake` with the two versions, and `client`. */
void switch_cuda_start(void);
/* Detaches, checks that no lease is left, and ends both. */
void switch_cuda_stop(struct gpuwm_mapping *mapping);

/* Returns a function of the driver that the library does not call. */
void *symbol(const char *name);
bool context_active(void);

/* Queues a read of tensor 2, and does not wait for it: *ret_bytes will be what the tensor holds when the stream gets
 * there. */
void queue_read(const struct gpuwm_mapping *mapping, char *ret_bytes);

/* ---- the log ----------------------------------------------------------- */

long log_end(void);
/* Returns the names of what was called since `from` (log_end), in its order, without the calls that only ask. The text
 * stays until the next call. */
const char *log_since(long from);
bool log_has(const char *words);

/* Returns how many calls of the driver `prepare` makes in a process of its own. Sets *ret_during to how many `act` makes
 * after it. */
int calls_of(void (*prepare)(void), void (*act)(void), int *ret_during);

/* ---- calls that fail --------------------------------------------------- */

/* The n-th call of this process's driver fails. Call it before the driver is opened. */
void call_fails(int n);

/* Runs `test` in a process of its own, in which the n-th call fails. Returns what it ends with, as waitpid does. */
int status_with(int n, int (*test)(int n));

#endif

#endif
