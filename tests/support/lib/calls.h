/* Calls that change something, and may not be repeated when their answer is lost. */
#ifndef GPUWM_TESTS_LIB_CALLS_H
#define GPUWM_TESTS_LIB_CALLS_H

#include "tests/support/lib/restart.h"

/* Each makes the call of its name on `client`, for version m@v1 or what else the fake gpuwmd has. Returns what it returns. */
int call_pin(void);
int call_unpin(void);
int call_swap(void);
int call_load(void);
int call_retire(void);
int call_cancel(void);
int call_drain(void);

#endif
