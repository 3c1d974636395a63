/* The devices of this machine, as the loader tells gpuwmd. It makes no CUDA context: it asks the
 * driver for names and sizes, and NVML for what is free. */
#ifndef GPUWM_LOADER_DEVICES_H
#define GPUWM_LOADER_DEVICES_H

#include "../proto/messages.h"

struct device {
	char id[DEVICE_BYTES_MAX + 1];
	const char *kind; /* "host", "cuda" */
	char name[128];
	uint64_t total;
	uint64_t free;
	bool free_known; /* false: there is no NVML here, or it does not know the device */
	uint64_t granularity;
	/* what a process that works on the device takes besides its memory: a CUDA context */
	uint64_t context;
};

/* Lists `host` first, then the GPUs in the driver's order. It calls cuInit the first time. A
 * machine without a driver or GPU is not an error. If a driver fails, it logs that to stderr.
 *
 * Returns 0 and sets *ret_devices, which the caller frees with free(), and *ret_count. Fails with
 * -ENOMEM, and with -EIO if it can't read /proc/meminfo. */
int devices_list(struct device **ret_devices, size_t *ret_count, struct error *error);

/* The same list, and as gpuwmd is told it. */
struct devices_found {
	struct device *devices;
	struct device_found *told; /* points into devices */
	size_t count;
};
/* Returns 0 and sets *ret, for devices_found_clear. Fails as devices_list does. */
int devices_find(struct devices_found *ret, struct error *error);
void devices_found_clear(struct devices_found *found);

#endif
