/* Legacy CUDA IPC (cuIpcGetMemHandle), which gpuwm does not use: tried for the comparison in `gpuwmctl doctor`. */
#ifndef GPUWM_LOADER_PROBE_IPC_H
#define GPUWM_LOADER_PROBE_IPC_H

#include "probe.h"

/* Tries it on a GPU, with the second process as the reader, inside memory_enter. Item "ipc". */
void probe_ipc(struct probe_peer *peer, const struct memory_device *device);
/* In the second process: opens the handle, reads and compares. -ENOTSUP: this build, or its driver, has no such calls. */
int probe_ipc_read(const struct memory_device *device, const unsigned char handle[64], struct error *error);

#endif
