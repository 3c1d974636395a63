/* Memory that leaves a device while only parked leases had it. Their holders said that they map nothing. If one of them does, the kernel or
 * the driver keeps the memory when gpuwmd has closed it. Of a GPU gpuwmd compares what is free before and after, as loaders report it.
 * Of host memory it looks at what the processes have (departures_host.c). */
#ifndef GPUWM_DAEMON_DEPARTURES_H
#define GPUWM_DAEMON_DEPARTURES_H

#include <stdint.h>

struct departure;
struct device;
struct move_part;
struct tier_move;
struct version_id;
struct work;

typedef void departures_then_fn(struct tier_move *move);

/* The version of the move has left its memory, which is to be closed. Asks what is free before that, unless there is nothing to compare,
 * or nobody to ask. */
void departures_begin(struct tier_move *move);
/* Calls `then` when that is known: at once, or after half a second at the latest. The move is in no list meanwhile. */
void departures_await(struct tier_move *move, departures_then_fn *then);
/* The memory of the part is closed, and its charge has gone back. The bytes stay charged until the GPU has them again, for
 * a second at most. After that they are missing: the log and the leases say so. */
void departures_closed(struct move_part *part);
/* A loader has reported what is free. */
void departures_reported(struct work *work);
/* Looks whether processes whose leases of this part are parked have its host memory, and warns. */
void departure_look_at_host(struct tier_move *move, uint32_t part);
/* The device did not get so many bytes back of those that left it with the version: the log names the holders of leases that are marked
 * (lease->missing). */
void departure_warn(struct work *work, const struct version_id *id, const struct device *device, uint64_t left,
		    uint64_t missing);
/* gpuwmd ends: nothing is compared any more. */
void departures_clear(struct work *work);

#endif
