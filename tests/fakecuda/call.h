/* What happens at every call into a stand-in: injected faults, and the log. */
#ifndef FAKECUDA_CALL_H
#define FAKECUDA_CALL_H

#include <stdbool.h>

/* The result that FAKECUDA_FAIL asks for at this call of `name`; 0: none. Does
 * not return where FAKECUDA_HANG says so. Counts the call. */
int call_fault(const char *name);

/* Whether FAKECUDA_FLIP names this copy from the host, or FAKECUDA_FLIP_BACK this one to it. Counts it. */
bool call_flips(bool back);

/* Appends the call and its result to FAKECUDA_LOG. Returns the result. */
int call_log(const char *name, int result);

#endif
