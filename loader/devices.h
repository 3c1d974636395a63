/* The devices of this machine, as the daemon is told them. Makes no CUDA
 * context: the driver is asked for names and sizes, NVML for what is free. */
#ifndef GPUWM_LOADER_DEVICES_H
#define GPUWM_LOADER_DEVICES_H

#include "../proto/message.h"

struct device {
	char id[DEVICE_BYTES_MAX + 1];
	const char *kind; /* "host", "cuda" */
	char name[128];
	uint64_t total;
	uint64_t free;
	bool free_known; /* false: no NVML here, or it does not know the device */
	uint64_t granularity;
	uint64_t context; /* what a process that works on it takes besides: a CUDA context */
};

/* `host` first, then the GPUs in the driver's order; free() the array. Calls
 * cuInit the first time. No driver or no GPU is no error; a driver that fails is told on
 * stderr. -ENOMEM; -EIO: /proc/meminfo. */
int devices_list(struct device **ret_devices, size_t *ret_count, struct error *error);

/* The same as the array `devices` of a message. */
int devices_put(struct message_writer *w, struct error *error);

#endif
