/* The devices of this machine, as the loader tells gpuwmd, and the kinds of them. Nothing here makes a context.
 *
 * A kind has a struct in a file of its own (device_host.c, device_cuda.c), and a row of `device_kinds` in device_kinds.c. */
#ifndef GPUWM_LOADER_DEVICES_H
#define GPUWM_LOADER_DEVICES_H

#include "../../memory/memory.h"
#include "../../proto/memory_kind.h"
#include "../../proto/wire/messages.h"
#include "../../base/errors.h"

#include <stdbool.h>
#include <stdint.h>

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

/* ---- kinds ---- */

struct lane_ops;
struct probe_peer;

/* What a loader does with devices of a kind, beside what memory/memory.h has: it lists them, looks whether one is lost, and
 * sends bytes to them in the background. */
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
	const struct lane_ops *lanes; /* lanes.h; NULL: the memory is written at once */
	/* Says what `gpuwmctl doctor` asks about the kind (probe.h). NULL: there is nothing to ask. */
	void (*probe)(struct probe_peer *peer);
};

extern const struct device_kind device_host, device_cuda;

/* All kinds, in the order in which their devices are listed. NULL ends the array. */
extern const struct device_kind *const device_kinds[];

/* Returns what the loader does with a kind. kind may be NULL, which has none: NULL. */
const struct device_kind *device_kind_of(const struct memory_kind *kind);

/* Sets *ret_bytes to the size of the device's memory. It makes no context. Returns 0. Fails with -ENOTSUP if this program was built
 * without the device's kind, with -ENODEV, and with -EIO. */
int device_total(const char *id, uint64_t *ret_bytes, struct error *error);

/* ---- NVML (nvml.c) ----
 *
 * What NVML, the driver's management interface, says about a GPU. NVML needs no CUDA, and knows a
 * GPU by its UUID. */

enum nvml_word {
	NVML_SILENT, /* there is no NVML, or its error says nothing about the GPU */
	NVML_THERE, /* NVML answers for the GPU */
	NVML_LOST, /* NVML says that the GPU is lost */
	NVML_ABSENT, /* NVML knows no GPU and no MIG device of this UUID */
	/* The GPU is divided into MIG devices now, so that the whole GPU is not a device any more. */
	NVML_DIVIDED,
};

/* Returns what NVML says about the device `id`, a UUID with either prefix. For the last three
 * values it sets *why (-ENODEV). */
enum nvml_word nvml_ask(const char *id, struct error *why);

/* Sets *ret_bytes to the free bytes of the device's memory. Returns false if NVML does not say. */
bool nvml_free(const char *id, uint64_t *ret_bytes);

/* Sets ret_id to the UUID of NVML's GPU with this number, and *ret_divided to whether it is divided into MIG devices. Returns
 * false if there is no such GPU, or NVML does not say. */
bool nvml_gpu(unsigned number, char ret_id[DEVICE_BYTES_MAX + 1], bool *ret_divided);

#endif
