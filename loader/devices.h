/* The devices of this machine, as the loader tells gpuwmd. It makes no context. */
#ifndef GPUWM_LOADER_DEVICES_H
#define GPUWM_LOADER_DEVICES_H

#include "../proto/memory_kind.h"
#include "../proto/message.h"

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

/* Writes the machine's devices as the array `devices` of a message: `host` first, then the GPUs in the
 * driver's order. It calls cuInit the first time. A machine without a driver or GPU is not an error. If
 * a driver fails, it logs that to stderr. Fails with -ENOMEM, and with -EIO if it can't read
 * /proc/meminfo. */
int devices_put(struct message_writer *w, struct error *error);

#endif
