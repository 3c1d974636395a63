#include "memory.h"

#include "../../proto/digest.h"
#include "../../proto/names.h"

#include <errno.h>
#include <string.h>

#ifdef GPUWM_CUDA
#include "cuda.h"

static int open_cuda(struct memory_device *device, struct error *error)
{
	return cuda_find(device->id, &device->ordinal, error);
}

static int reaches(const struct memory_device *peer, const struct memory_device *device, struct error *error)
{
	return cuda_reaches(peer->ordinal, device->ordinal, error);
}
#else
const struct memory_ops memory_cuda = {.kind = "cuda"};

static int open_cuda(struct memory_device *device, struct error *error)
{
	return error_set(error, -ENOTSUP, "build it where CUDA_HOME/include/cuda.h is",
			 "this libgpuwm-client was built without cuda.h: it can't use %s", device->id);
}

/* There is no device that could be asked. */
static int reaches(const struct memory_device *peer, const struct memory_device *device, struct error *error)
{
	return error_set(error, -ENOTSUP, NULL, "%s can't read the memory of %s", peer->id, device->id);
}
#endif

int memory_device_open(const char *id, struct memory_device *ret, struct error *error)
{
	struct memory_device device = {.ops = &memory_host};
	const char *wrong = device_wrong(id);
	int r = 0;

	if (wrong)
		return error_set(error, -EINVAL, "a device is \"host\" or a GPU's UUID",
				 "the device \"%.64s\" %s", id, wrong);
	strcpy(device.id, id);
	if (strcmp(id, DEVICE_HOST) != 0) {
		device.ops = &memory_cuda;
		r = open_cuda(&device, error);
	}
	if (r == 0)
		*ret = device;
	return r;
}

static bool has_peer(const struct memory_device *device, int ordinal)
{
	unsigned i = 0;

	while (i < device->peer_count && device->peers[i] != ordinal)
		i++;
	return i < device->peer_count;
}

static int peer_add(struct memory_device *device, const char *id, struct error *error)
{
	struct memory_device peer;
	int r = id ? memory_device_open(id, &peer, error)
		   : error_set(error, -EINVAL, "one of gpuwm_devices", "a peer is NULL");

	if (r < 0)
		return r;
	if (peer.ops == &memory_host || device->ops == &memory_host)
		return error_set(error, -EINVAL, "attach without peers; the CPU reads host memory itself",
				 "host memory has no peers, and is none");
	if (peer.ordinal == device->ordinal || has_peer(device, peer.ordinal))
		return 0;
	r = reaches(&peer, device, error);
	if (r == 0)
		device->peers[device->peer_count++] = peer.ordinal;
	return r;
}

int memory_device_peers(struct memory_device *device, const char *const *ids, size_t count, struct error *error)
{
	int r = 0;

	if (count > 0 && !ids)
		return error_set(error, -EINVAL, NULL, "peer_count is %zu, and peers is NULL", count);
	if (count > MEMORY_PEERS_MAX)
		return error_set(error, -EINVAL, NULL, "%zu peers, the limit is %d", count, MEMORY_PEERS_MAX);
	device->peer_count = 0;
	for (size_t i = 0; i < count && r == 0; i++)
		r = peer_add(device, ids[i], error);
	return r;
}
