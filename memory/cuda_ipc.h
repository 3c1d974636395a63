/* Legacy CUDA IPC: handles of memory of cuMemAlloc, which other processes open while its owner lives. */
#ifndef GPUWM_LIB_CUDA_IPC_H
#define GPUWM_LIB_CUDA_IPC_H

#include "cuda.h"

/* The driver's functions. They are no rows of CUDA_FUNCTIONS: gpuwm works with a driver that lacks them. */
struct cuda_ipc {
	__typeof__(cuIpcGetMemHandle) *get_memory;
	__typeof__(cuIpcOpenMemHandle) *open_memory;
	__typeof__(cuIpcCloseMemHandle) *close_memory;
	__typeof__(cuIpcGetEventHandle) *get_event;
};

/* Finds the functions in the driver, which the caller has opened. Returns 0. Fails with -ENOTSUP if the driver lacks one of them. */
int cuda_ipc_calls(struct cuda_ipc *ret, struct error *error);

#endif
