#include "probe.h"

#include <errno.h>

#ifdef GPUWM_CUDA

#include "../../memory/cuda.h"

#include <string.h>

int probe_ipc_read(const struct memory_device *device, const unsigned char handle[64], struct error *error)
{
	CUipcMemHandle copy;
	struct cuda_ipc ipc;
	CUdeviceptr address;
	CUresult result;
	int r = cuda_ipc_calls(&ipc, error);

	if (r < 0)
		return r;
	memcpy(&copy, handle, sizeof(copy));
	result = ipc.open_memory(&address, copy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuIpcOpenMemHandle in the second process");
	r = probe_compare(device, (const void *)address, error);
	ipc.close_memory(address);
	return r;
}

static int probe_ipc_ask(struct probe_peer *peer, const struct memory_device *device, CUdeviceptr address,
			 struct error *error)
{
	struct probe_request request = {.is_ipc = true};
	unsigned char content[PROBE_BYTES];
	CUipcMemHandle handle;
	struct cuda_ipc ipc;
	CUresult result;
	int r = cuda_ipc_calls(&ipc, error);

	_Static_assert(sizeof(handle) == sizeof(request.handle), "the request has room for the handle");
	probe_fill(content);
	if (r == 0)
		r = device->ops->write(device, (void *)address, content, PROBE_BYTES, error);
	if (r == 0)
		r = device->ops->idle(device, error);
	if (r < 0)
		return r;
	result = ipc.get_memory(&handle, address);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuIpcGetMemHandle");
	memcpy(request.handle, &handle, sizeof(handle));
	memcpy(request.device, device->id, sizeof(request.device));
	return probe_peer_ask(peer, &request, -1, error);
}

static int probe_ipc_try(struct probe_peer *peer, const struct memory_device *device, struct error *error)
{
	const struct cuda_driver *cuda = cuda_opened();
	CUdeviceptr address;
	CUresult result;
	int r;

	result = cuda->cuMemAlloc_v2(&address, PROBE_BYTES);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuMemAlloc");
	r = probe_ipc_ask(peer, device, address, error);
	cuda->cuMemFree_v2(address);
	return r;
}

void probe_ipc(struct probe_peer *peer, const struct memory_device *device)
{
	struct error error;

	probe_say("ipc", device->id, PROBE_TRYING, "", "");
	if (probe_ipc_try(peer, device, &error) < 0)
		probe_say_error("ipc", device->id, PROBE_NO, &error);
	else
		probe_say("ipc", device->id, PROBE_OK, "a second process opened a handle and read the memory",
			  "");
}

#else

int probe_ipc_read(const struct memory_device *device, const unsigned char handle[64], struct error *error)
{
	(void)device;
	(void)handle;
	return error_set(error, -ENOTSUP, NULL, "this build has no CUDA");
}

#endif
