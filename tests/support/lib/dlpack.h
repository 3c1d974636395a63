/* What tests of exports share: a fake gpuwmd that has the versions of versions.h, and a client of it. */
#ifndef GPUWM_TESTS_LIB_DLPACK_H
#define GPUWM_TESTS_LIB_DLPACK_H

#include "client/lib/mapping/attach.h"
#include "include/gpuwm/client.h"
#include "include/gpuwm/dlpack.h"
#include "tests/support/lib/versions.h"
#include "tests/support/lib/client.h"

#ifdef GPUWM_CUDA
#include "memory/cuda.h"
#endif

/* Starts `fake` with two versions of one layout, "m@v1" full of 1 and "m@v2" full of 2, and `client`. */
void export_start_on(const char *device_id);
/* The same on the backend's device: a GPU, where there is a driver to test with. */
void export_start(void);
/* Ends both, when all leases have been given back. */
void export_stop(void);
bool on_host(void);

/* Fixtures: the same on host, of whose children exit is safe; the end, with no descriptor left. */
void export_setup(void);
void export_teardown(void);

/* The caller calls its deleter. */
struct DLManagedTensor *export_of(struct gpuwm_mapping *mapping, const char *name);

/* A forked child that calls exit leaves after all that is registered from now on, and before LeakSanitizer takes the
 * threads of its parent for its own. */
void children_leave_early(void);

#endif
