/* Loaders that keep their CUDA contexts, on tests/fakecuda. */
#ifndef GPUWM_TESTS_LOADER_WARM_H
#define GPUWM_TESTS_LOADER_WARM_H

#include "tests/support/loader/daemon.h"

#define GPU0 "GPU-fa4e0000-0000-4000-8000-000000000000"
#define GPU1 "GPU-fa4e0000-0000-4000-8000-000000000001"

/* Starts a loader, with this variable in its environment (NULL: none), and answers its hello. Skips the test without the
 * stand-in for the driver. */
void start_with(const char *variable, const char *value);
/* The same, for break_context. */
void start_to_lose(void);
/* Every later call in a context of the first GPU fails. */
void break_context(void);
/* Waits for the loader's end, which is to be a good one. */
void stop(void);
/* The same, after it was not to stay. */
void stop_ended(void);

/* How many calls of the driver whose names begin so there were. */
unsigned count_calls(const char *function);
/* Whether this process has a context on the GPU. */
bool context_active(int ordinal);
/* Expects a loader_done without an error, and answers it. Returns whether it offers to stay. */
bool finishes(bool stay);

unsigned live_threads(void);
/* Returns whether descriptors and threads come to be no more than these: a thread that ends may take a moment. */
bool comes_to(int fds, unsigned threads);

#endif
