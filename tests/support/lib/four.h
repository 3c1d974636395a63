/* A publish of four tensors on the host, m@v1, to the fake gpuwmd. */
#ifndef GPUWM_TESTS_LIB_FOUR_H
#define GPUWM_TESTS_LIB_FOUR_H

#include "tests/support/lib/client.h"

#define FOUR 4

extern const struct gpuwm_tensor_spec four_specs[FOUR];

/* Begins it. */
struct gpuwm_publish *four_begin(void);

/* Does all of it. The fake holds the version afterwards: b is 0, 1, 2, …; a is 7; the scalar is -5. */
struct gpuwm_version_info four_publish(void);

#endif
