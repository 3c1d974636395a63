/* Devices and their budgets. What loaders report is kept here; gpuwmd itself
 * asks no GPU. Memory is charged before it is made and given back when it is
 * really there again. */
#ifndef GPUWM_DAEMON_DEVICE_H
#define GPUWM_DAEMON_DEVICE_H

#include "memory_kind.h"
#include "../base/quota.h"
#include "../../proto/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
	char id[DEVICE_BYTES_MAX + 1]; /* "host", "GPU-…" */
	char name[64];
	const struct memory_kind *kind;
	uint64_t total, granularity; /* bytes */
	uint64_t context; /* what a process that works on it takes besides, as a loader said */
	uint64_t free, free_at_ms; /* as a loader saw it last, and when (monotonic; 0: none has) */
	uint64_t budget; /* may be granted */
	uint64_t used; /* is granted */
	uint64_t contexts; /* of it: for contexts of loaders that have not gone */
	uint64_t still_mapped; /* of it: of freed versions that holders of revoked leases may still map */
	struct error lost; /* how the GPU was lost, as a loader found; code 0: the GPU is in use */
};

/* A device never leaves the table: versions refer to it. At most DEVICES_MAX. */
#define DEVICES_MAX 65
struct device_table {
	struct device *devices[DEVICES_MAX];
	size_t count;
	/* Budgets of the configuration, by device id ("*": every GPU). */
	struct {
		char id[DEVICE_BYTES_MAX + 1];
		uint64_t bytes; /* 0: percent counts */
		unsigned percent;
	} budgets[DEVICES_MAX];
	size_t budget_count;
};

/* Sets what the configuration says, before the first report; again for the
 * same id replaces. bytes 0: percent of the device's total counts. -EINVAL: no
 * such id can be, or above 100 percent; -ENOSPC: too many. */
int device_table_budget(struct device_table *table, const char *id, uint64_t bytes, unsigned percent);
/* Makes the budgets of devices that are there anew from what was set: it may be below what is used, then
 * nothing more is granted. */
void device_table_rebudget(struct device_table *table);
/* Adds or refreshes one device as a loader reported it; the budget is made at
 * the first report, a later one brings name, total, context and free only. -EINVAL, -ENOMEM, -ENOSPC. */
int device_table_report(struct device_table *table, const struct device *report, uint64_t now_ms);
/* Writes `devices: [{device, lost}]` for a loader: the devices that gpuwmd knows, and which of them are lost. */
void device_table_put(struct message_writer *w, const struct device_table *table);
/* NULL: no such device. */
struct device *device_find(const struct device_table *table, const char *id);
void device_table_clear(struct device_table *table);
/* Checks that the device can take loads and publishes. -ENODEV: it is lost; the error says how, and the remedy. */
int device_check_there(const struct device *device, struct error *error);

/* What was charged; gives itself back. Zeroed: nothing. */
struct budget_charge {
	struct device *device;
	uint64_t bytes;
	bool context;
	struct quota_charge quota; /* the same bytes, of a user; zeroed: nobody's */
};

/* Checks that so many bytes fit beside all that is charged now. -ENOSPC, with the bytes of the budget, used and free. */
int budget_check(const struct device *device, uint64_t bytes, struct error *error);
/* The same, and charges the bytes. ret must be zeroed. */
int budget_charge(struct device *device, uint64_t bytes, struct budget_charge *ret, struct error *error);
/* Charges the bytes to the user too, until they are given back. -EDQUOT, -ENOMEM: the charge stays as it is. */
int budget_charge_user(struct budget_charge *charge, struct quota *quota, uid_t uid, struct error *error);
/* Checks that a loader's context fits. -EAGAIN: it will fit when the contexts of other loaders are gone; -ENOSPC: it will
 * not fit even then. */
int budget_check_context(const struct device *device, struct error *error);
/* The same, and charges the context. */
int budget_charge_context(struct device *device, struct budget_charge *ret, struct error *error);
/* Of the budget, once the contexts that are there now are gone. */
uint64_t budget_left(const struct device *device);
/* Whether so many bytes and a context fit, once the contexts that are there now are gone. -ENOSPC. */
int budget_check_with_context(const struct device *device, uint64_t bytes, struct error *error);
/* What was charged before a restart is charged again, also above the budget. */
void budget_adopt(struct device *device, uint64_t bytes, struct budget_charge *ret);
/* Gives back all above `bytes`. */
void budget_shrink(struct budget_charge *charge, uint64_t bytes);
/* Twice is fine. */
void budget_release(struct budget_charge *charge);

#endif
