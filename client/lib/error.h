/* The last error of each thread, which gpuwm_error tells. */
#ifndef GPUWM_LIB_ERROR_H
#define GPUWM_LIB_ERROR_H

#include "../../include/gpuwm/client.h"
#include "../../proto/errors.h"

/* Sets this thread's gpuwm_error from *error; returns error->code. */
int client_fail(const struct error *error);

#endif
