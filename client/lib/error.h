/* The last error of each thread, which gpuwm_error returns. */
#ifndef GPUWM_LIB_ERROR_H
#define GPUWM_LIB_ERROR_H

#include "../../include/gpuwm/client.h"
#include "../../base/errors.h"

/* Sets the last error of this thread, and returns error->code. */
int client_fail(const struct error *error);

#endif
