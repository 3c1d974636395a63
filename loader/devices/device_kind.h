/* What a loader does with devices of a kind, beside what memory/memory.h has: it lists them, looks whether one is lost, and
 * sends bytes to them in the background. A kind has a struct here in a file of its own (device_host.c, device_cuda.c), and a row
 * of `device_kinds` in device_kinds.c. */
#ifndef GPUWM_LOADER_DEVICE_KIND_H
#define GPUWM_LOADER_DEVICE_KIND_H

#include "../../memory/memory.h"

struct device_list;
struct lane_ops;

struct device_kind {
	const struct memory_kind *kind;
	/* Adds the devices of this machine to the list, without making a context. A machine that has none is not an error. A
	 * device that can't be used is left out, and logged. NULL: this program was built without the kind. Fails with -ENOMEM,
	 * and with -EIO. */
	int (*list)(struct device_list *list, struct error *error);
	/* Sets *ret_bytes to the size of the device's memory, without making a context. NULL where `list` is. Fails with -ENODEV,
	 * and with -EIO. */
	int (*total)(const char *id, uint64_t *ret_bytes, struct error *error);
	/* Whether the device is lost, as it is seen without a context: loss_is_seen says more. NULL: devices can't be lost. */
	bool (*is_lost)(const char *id, struct error *why);
	/* Whether the driver may refuse this process a context because another process has one. NULL: it does not. */
	bool (*is_exclusive)(const struct memory_device *device);
	const struct lane_ops *lanes; /* lane.h; NULL: the memory is written at once */
};

extern const struct device_kind device_host, device_cuda;

/* All kinds, in the order in which their devices are listed. NULL ends the array. */
extern const struct device_kind *const device_kinds[];

/* Returns what the loader does with a kind. kind may be NULL, which has none: NULL. */
const struct device_kind *device_kind_of(const struct memory_kind *kind);

/* Sets *ret_bytes to the size of the device's memory. It makes no context. Returns 0. Fails with -ENOTSUP if this program was built
 * without the device's kind, with -ENODEV, and with -EIO. */
int device_total(const char *id, uint64_t *ret_bytes, struct error *error);

#endif
