/* What is in the way of a charge to a device's budget, and will go. */
#ifndef GPUWM_DAEMON_ROOM_H
#define GPUWM_DAEMON_ROOM_H

#include "../proto/errors.h"

#include <stdint.h>

struct device;
struct server;

/* Bytes of the device that nobody uses any more: they come back when what held them is closed, or gone. */
uint64_t room_being_freed(const struct server *server, const struct device *device);

/* Adds to the remedy of a refusal (-ENOSPC) of so many bytes of the device what comes back without anybody's
 * doing, so that its reader knows what waiting is good for. Nothing does: it stays as it is. */
void room_explain(const struct server *server, const struct device *device, uint64_t bytes,
		  struct error *error);

#endif
