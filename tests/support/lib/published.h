/* What tests of publishing in place share: a fake gpuwmd, and a publish of three tensors in two segments. */
#ifndef GPUWM_TESTS_LIB_PUBLISHED_H
#define GPUWM_TESTS_LIB_PUBLISHED_H

#include "include/gpuwm/client.h"
#include "include/gpuwm/dlpack.h"
#include "tests/support/any/reach.h"
#include "tests/support/lib/client.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#define TENSORS 3

extern const struct gpuwm_tensor_spec specs[TENSORS];

/* Starts `fake`, whose device is this one, and `client`. */
void published_start_on(const char *device_id);
#ifdef GPUWM_CUDA
/* The same on the stand-in's first GPU. Skips the test where there is none. */
void published_start_cuda(void);
#endif
/* Ends both, with no descriptor left. */
void published_stop(void);

/* Begins to publish `specs` as m@v1. */
struct gpuwm_publish *begin(bool stepwise);
/* Fills a tensor with bytes of its own, by which `holds` knows it. */
void fill(struct gpuwm_publish *publish, size_t position);
bool holds(const void *data, size_t position);

/* Begins, fills all tensors and sets *ret to an export of each. */
struct gpuwm_publish *begin_exported(struct DLManagedTensor *ret[TENSORS]);
/* All can be read and hold what they were filled with; they can be written, or can't. */
void expect_exports(struct DLManagedTensor *const exports[TENSORS], bool writable);
void free_exports(struct DLManagedTensor *const exports[TENSORS]);

#endif
