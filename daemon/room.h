/* What is in the way of a charge to a device's budget, and will go. */
#ifndef GPUWM_DAEMON_ROOM_H
#define GPUWM_DAEMON_ROOM_H

#include "../proto/errors.h"

#include <stdint.h>

struct device;
struct server;

/* Adds to the remedy of a refusal (-ENOSPC) of so many bytes of the device what comes back without anybody's
 * doing, so that its reader knows what waiting is good for. Nothing does: it stays as it is. */
void room_explain(const struct server *server, const struct device *device, uint64_t bytes,
		  struct error *error);

#endif
