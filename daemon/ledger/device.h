/* Devices and their budgets. gpuwmd itself asks no GPU: loaders report what they see. gpuwmd charges memory before a loader
 * or publisher makes it, and gives the charge back when the memory is free again. */
#ifndef GPUWM_DAEMON_DEVICE_H
#define GPUWM_DAEMON_DEVICE_H

#include "../base/quota.h"
#include "../../proto/memory_kind.h"
#include "../../proto/wire/messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
	char id[DEVICE_BYTES_MAX + 1]; /* "host", "GPU-…" */
	char name[DEVICE_NAME_BYTES_MAX + 1];
	const struct memory_kind *kind;
	uint64_t total, granularity; /* bytes */
	uint64_t context; /* what the context of a process that works on it takes, as a loader reported */
	uint64_t free, free_at_ms; /* what a loader saw last, and when (steady; 0: never) */
	uint64_t budget; /* how much may be charged */
	uint64_t used; /* how much is charged */
	uint64_t by_users; /* part of `used`: what users are charged with too, and no operator */
	uint64_t contexts; /* part of `used`: contexts of loaders that have not gone */
	uint64_t rooms; /* part of `used`: what holders of leases take besides versions (lease_room.c) */
	uint64_t still_mapped; /* part of `used`: freed versions that holders of revoked leases may still map */
	struct error lost; /* how the GPU was lost, as a loader found; code 0: it was not lost */
};

/* A device never leaves the table, because versions refer to it. There are at most DEVICES_MAX. */
#define DEVICES_MAX 65
struct device_table {
	struct device *devices[DEVICES_MAX];
	size_t count;
	/* Budgets of the configuration, by device id ("*": every GPU). */
	struct {
		char id[DEVICE_BYTES_MAX + 1];
		uint64_t bytes; /* 0: `percent` of the device's bytes */
		unsigned percent;
	} budgets[DEVICES_MAX];
	size_t budget_count;
};

/* Sets the budget that the configuration gives a device. Call it before the first report. A second call for the same id
 * replaces the first. bytes 0: `percent` of the device's bytes. Fails with -EINVAL (no device can have this id, or percent is
 * above 100) and -ENOSPC (there are too many budgets). */
int device_table_budget(struct device_table *table, const char *id, uint64_t bytes, unsigned percent);
/* Computes the budget of each device again, after the configuration has changed. If it is below what is used now, nothing
 * more can be charged. */
void device_table_rebudget(struct device_table *table);
/* Adds a device that a loader reported. If the device is there, the report only sets its name, total, context and free bytes. Computes
 * the budget of both: a device that an earlier gpuwmd knew may have another size now, and so may the host after a reload. Fails with -EINVAL (the id is wrong), -ENOMEM and -ENOSPC (there are DEVICES_MAX). */
int device_table_report(struct device_table *table, const struct device *report, uint64_t now_ms);
/* Sets ret to the devices that gpuwmd knows, and which of them are lost, as a loader is told; returns how many. */
uint32_t device_table_known(const struct device_table *table, struct device_known ret[DEVICES_MAX]);
/* Returns the device with this id, or NULL. */
struct device *device_find(const struct device_table *table, const char *id);
void device_table_clear(struct device_table *table);
/* Checks that the device can take loads and publishes. -ENODEV: it is lost; the error says how, and the remedy. */
int device_check_there(const struct device *device, struct error *error);

/* What was charged to a device, for budget_release. Zeroed: nothing. */
struct budget_charge {
	struct device *device;
	uint64_t bytes;
	bool context;
	struct quota_charge quota; /* the same bytes, charged to a user; zeroed: to no user */
};

/* Checks that so many bytes fit beside all that is charged now. -ENOSPC, with the bytes of the budget, used and free. */
int budget_check(const struct device *device, uint64_t bytes, struct error *error);
/* The same, and charges the bytes. ret must be zeroed. */
int budget_charge(struct device *device, uint64_t bytes, struct budget_charge *ret, struct error *error);
/* Checks that users may have so many bytes more there: an eighth of the budget is kept for operators (base/share.h). Fails with -ENOSPC,
 * with the figures. */
int budget_check_users(const struct device *device, uint64_t bytes, struct error *error);
/* Returns how much of the budget users may still take. */
uint64_t budget_left_for_users(const struct device *device);
/* Charges the bytes to the user too, until they are given back. -ENOSPC (budget_check_users), -EDQUOT, -ENOMEM: the charge stays as it
 * is. */
int budget_charge_user(struct budget_charge *charge, struct quota *quota, uid_t uid, struct error *error);
/* The same for what the user held before a restart, even beyond the limit. -ENOMEM. */
int budget_adopt_user(struct budget_charge *charge, struct quota *quota, uid_t uid, struct error *error);
/* Returns whether more is charged, besides contexts that will go, than the budget has: it became smaller, or more was adopted. */
bool budget_is_exceeded(const struct device *device);
/* Charges the user of `from`, if it has one, with the bytes of `to` instead. */
void budget_move_user(struct budget_charge *from, struct budget_charge *to);
/* Charges another user with the bytes, even beyond the limits; uid NULL: none. Of a charge without a user nothing changes. -ENOMEM: nobody
 * is charged. */
int budget_repay(struct budget_charge *charge, const uid_t *uid, struct error *error);
/* Checks that a loader's context fits. -EAGAIN: it will fit when the contexts of other loaders are gone; -ENOSPC: it will
 * not fit even then. */
int budget_check_context(const struct device *device, struct error *error);
/* The same, and charges the context. */
int budget_charge_context(struct device *device, struct budget_charge *ret, struct error *error);
/* Charges the context even beyond the budget: the loader makes room. */
void budget_force_context(struct device *device, struct budget_charge *ret);
/* A context that was charged stays as long as its process has something to keep: it no longer counts as one that will go. */
void budget_keep_context(struct budget_charge *charge);
/* Returns how much of the budget is left once the present contexts have gone. */
uint64_t budget_left(const struct device *device);
/* Checks that so many bytes and a context fit once the present contexts have gone. Fails with -ENOSPC. */
int budget_check_with_context(const struct device *device, uint64_t bytes, struct error *error);
/* Charges again what an earlier gpuwmd had charged, even beyond the budget. */
void budget_adopt(struct device *device, uint64_t bytes, struct budget_charge *ret);
/* Moves `bytes` of the charge, which has as many, into *ret. */
void budget_split(struct budget_charge *charge, uint64_t bytes, struct budget_charge *ret);
/* Gives back what was charged beyond `bytes`. */
void budget_shrink(struct budget_charge *charge, uint64_t bytes);
/* Gives the charge back, and zeroes it. A zeroed charge is fine. */
void budget_release(struct budget_charge *charge);

#endif
