/* What stands in the way of a charge to a device's budget, and whether it will go. */
#ifndef GPUWM_DAEMON_ROOM_H
#define GPUWM_DAEMON_ROOM_H

#include "../../../base/errors.h"

#include <stdbool.h>

#include <stdint.h>

struct device;
struct loader;
struct work;

/* What a charge that does not fit now has to wait for. */
enum room_wait {
	ROOM_NEVER, /* nothing that ends by itself would make room enough */
	ROOM_CONTEXTS, /* the contexts of other loaders, which will end */
	ROOM_FREED, /* memory that is being freed */
	ROOM_EVICTED, /* versions that are demoted for it: evictions.c */
	ROOM_QUOTA, /* versions of the same user that are on their way to be freed, which count for its quotas until then */
};
/* Returns what so many bytes of the device, which do not fit now, have to wait for. beside: bytes that will be charged
 * before them. loader: the loader that wants the bytes and has its context already, or NULL. If two loaders would wait for
 * each other's contexts, neither may. */
enum room_wait room_wait(const struct work *work, const struct device *device, uint64_t bytes, uint64_t beside,
			 const struct loader *loader);

/* Checks whether gpuwmd would grant a load so many bytes of the device and a context, either now or after the wait that
 * room_wait returns. -ENOSPC, with the error that the load would fail with. */
int room_check_load(const struct work *work, const struct device *device, uint64_t bytes, struct error *error);

/* Returns the bytes of the device that nobody uses any more, and that will be free when their descriptors are closed or their
 * processes have exited. */
uint64_t room_being_freed(const struct work *work, const struct device *device);

/* Adds to the remedy of a refusal (-ENOSPC) of so many bytes of the device what memory will come back by itself, so that the
 * reader knows whether to wait. An operator also learns whose processes still map what has ended, and which regions are in the way: others
 * may not know of them. */
void room_explain(const struct work *work, const struct device *device, uint64_t bytes, bool to_operator,
		  struct error *error);

#endif
