/* The devices of this machine, as the loader tells gpuwmd. It makes no context. */
#ifndef GPUWM_LOADER_DEVICES_H
#define GPUWM_LOADER_DEVICES_H

#include "../../proto/memory_kind.h"
#include "../../proto/wire/messages.h"

struct device {
	char id[DEVICE_BYTES_MAX + 1];
	const struct memory_kind *kind;
	char name[128];
	uint64_t total;
	uint64_t free;
	bool free_known; /* false: nothing tells it */
	uint64_t granularity;
};

struct device_list {
	struct device *devices;
	size_t count;
};

/* Copies the device to the end of the list. Fails with -ENOMEM. */
int device_list_add(struct device_list *list, const struct device *device, struct error *error);

/* The machine's devices, and as gpuwmd is told them. */
struct devices_found {
	struct device_list list;
	struct device_found *told; /* as many; points into the list */
};
/* Lists the machine's devices: `host` first, then the GPUs in the driver's order. It calls cuInit the first
 * time. A machine without a driver or GPU is not an error. If a driver fails, it logs that to stderr.
 * Returns 0 and sets *ret, for devices_found_clear. Fails with -ENOMEM, and with -EIO if it can't read
 * /proc/meminfo. */
int devices_find(struct devices_found *ret, struct error *error);
void devices_found_clear(struct devices_found *found);

#endif
