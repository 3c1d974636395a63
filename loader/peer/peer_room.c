#include "peer_room.h"

#include "../devices/devices.h"

#include "../../base/bytes.h"

#include <errno.h>

#define DOUBT "; if the size can't be true, look at that node with gpuwmctl ls"
#define REMEDY "name a larger device" DOUBT
#define REMEDY_RANKS "name larger devices, or one for each rank" DOUBT

static int room_check_device(const char *id, uint64_t bytes, const struct peer_offer *offer, const char *peer,
			     struct error *error)
{
	char needed[BYTES_TEXT], there[BYTES_TEXT];
	uint64_t total;
	int r = device_total(id, &total, error);

	if (r < 0 || bytes <= total)
		return r;
	return error_set(error, -ENOSPC, offer->world > 1 ? REMEDY_RANKS : REMEDY,
			 "%s offers %s of %s for %s, which has %s in all: nothing was taken", peer,
			 bytes_format(bytes, needed), offer->ref, id, bytes_format(total, there));
}

int peer_room_check(const struct job *job, const struct peer_offer *offer, const char *peer,
		    struct error *error)
{
	uint64_t all = 0;
	int r = 0;

	if (offer->world != 1 && job->device_count != 1 && job->device_count != offer->world)
		return error_set(error, -EINVAL, "name one device for each rank, or one for all of them",
				 "%s has %u ranks, but %zu devices are named", job->source, offer->world,
				 job->device_count);
	/* The peer may tell any numbers, so their sum may overflow. */
	for (uint32_t i = 0; i < offer->world; i++) {
		if (__builtin_add_overflow(all, offer->parts[i].bytes, &all)) {
			all = UINT64_MAX;
			break;
		}
	}
	for (size_t i = 0; r == 0 && i < job->device_count; i++) {
		uint64_t bytes = job->device_count == 1 ? all : offer->parts[offer->world > 1 ? i : 0].bytes;

		r = room_check_device(job->devices[i], bytes, offer, peer, error);
	}
	return r;
}
