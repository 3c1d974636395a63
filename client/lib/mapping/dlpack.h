/* Exports tensors to other frameworks. */
#ifndef GPUWM_LIB_DLPACK_H
#define GPUWM_LIB_DLPACK_H

#include "../../../include/gpuwm/client.h"
#include "../../../include/gpuwm/dlpack.h"
#include "../../../memory/memory.h"
#include "../../../base/reaper.h"

struct dlpack_source {
	const struct memory_device *device;
	const struct gpuwm_tensor *tensor; /* its data, bytes, dtype, shape and strides, all copied */
	bool writable;
	struct keep *keep; /* of the memory: used by the export */
};

/* Return 0 or 1 as gpuwm_dlpack and gpuwm_dlpack_versioned. Fail with -EOVERFLOW if DLPack has no number for a dimension, and with -ENOTSUP if
 * the dtype is one of GGUF's, or one that this library does not know. */
int dlpack_export(const struct dlpack_source *from, struct DLManagedTensor **ret, struct error *error);
int dlpack_export_versioned(const struct dlpack_source *from, struct DLManagedTensorVersioned **ret,
			    struct error *error);

#endif
