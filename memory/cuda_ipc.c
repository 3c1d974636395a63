#ifdef GPUWM_CUDA

#include "cuda_ipc.h"

#include <dlfcn.h>
#include <errno.h>

int cuda_ipc_calls(struct cuda_ipc *ret, struct error *error)
{
	const struct cuda_driver *cuda = cuda_opened();
	void *library = cuda ? cuda->library : NULL;

	*ret = (struct cuda_ipc){0};
	if (library) {
		*(void **)&ret->get_memory = dlsym(library, "cuIpcGetMemHandle");
		*(void **)&ret->open_memory = dlsym(library, "cuIpcOpenMemHandle_v2");
		*(void **)&ret->close_memory = dlsym(library, "cuIpcCloseMemHandle");
		*(void **)&ret->get_event = dlsym(library, "cuIpcGetEventHandle");
	}
	if (ret->get_memory && ret->open_memory && ret->close_memory && ret->get_event)
		return 0;
	return error_set(error, -ENOTSUP, "attach by descriptors",
			 "the CUDA driver lacks functions of legacy IPC (cuIpcGetMemHandle and others)");
}

#endif
