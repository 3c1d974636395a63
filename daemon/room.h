/* What is in the way of a charge to a device's budget, and will go. */
#ifndef GPUWM_DAEMON_ROOM_H
#define GPUWM_DAEMON_ROOM_H

#include "../proto/errors.h"

#include <stdint.h>

struct device;
struct loader;
struct server;

/* What is in the way of a charge now, and will be gone without anybody's doing. */
enum room_wait {
	ROOM_NEVER, /* more than that is in the way */
	ROOM_CONTEXTS, /* contexts of other loaders that will end */
	ROOM_FREED, /* what is being freed */
};
/* Of so many bytes of the device that don't fit now; `beside` is what else is charged before them. loader: who asks, and has
 * its context already; NULL: nobody. Of two loaders that wait for each other none passes. */
enum room_wait room_wait(const struct server *server, const struct device *device, uint64_t bytes,
			 uint64_t beside, const struct loader *loader);

/* Whether gpuwmd would grant a load so many bytes of the device, with the context that it needs besides: now, or as soon
 * as what room_wait names is gone. -ENOSPC with the words that the load would fail with. */
int room_check_load(const struct server *server, const struct device *device, uint64_t bytes,
		    struct error *error);

/* Bytes of the device that nobody uses any more: they come back when what held them is closed, or gone. */
uint64_t room_being_freed(const struct server *server, const struct device *device);

/* Adds to the remedy of a refusal (-ENOSPC) of so many bytes of the device what comes back without anybody's
 * doing, so that its reader knows what waiting is good for. Nothing does: it stays as it is. */
void room_explain(const struct server *server, const struct device *device, uint64_t bytes,
		  struct error *error);

#endif
