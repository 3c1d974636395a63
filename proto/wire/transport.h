/* How a lease hands memory over: as descriptors, or as handles of legacy CUDA IPC, which name a copy in another process. */
#ifndef GPUWM_PROTO_TRANSPORT_H
#define GPUWM_PROTO_TRANSPORT_H

#include "record.h"

#define TRANSPORT_FD "fd"
#define TRANSPORT_CUDA_IPC "cuda_ipc"
#define TRANSPORT_BYTES_MAX 15

/* A CUipcMemHandle or CUipcEventHandle, as the driver makes it; in messages as hexadecimal digits. */
#define IPC_HANDLE_BYTES 64
#define IPC_HANDLE_TEXT (2 * IPC_HANDLE_BYTES + 1)
struct ipc_handle {
	uint8_t bytes[IPC_HANDLE_BYTES];
};

void ipc_handle_format(const struct ipc_handle *handle, char text[IPC_HANDLE_TEXT]);
/* Fails with -EINVAL unless the text is IPC_HANDLE_BYTES bytes as lower-case hexadecimal digits. */
int ipc_handle_parse(const char *text, struct ipc_handle *ret);

/* A segment of a copy. */
struct ipc_segment {
	const char *handle;
	uint64_t bytes;
};
extern const struct record ipc_segment_record;

/* Returns 0 if gpuwmd hands memory over so. NULL is TRANSPORT_FD. Fails with -ENOTSUP; the error names the transport and those that
 * there are. */
int transport_check(const char *transport, struct error *error);

#endif
