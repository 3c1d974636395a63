/* Another GPU of this process that reaches a region's memory. */
#include "region.h"

#include <errno.h>

static int no_peers(const struct gpuwm_region *region, struct error *error)
{
	return error_set(error, -ENOTSUP, "copy through a GPU that reaches the region's",
			 region->looks ? "region %s was opened to look only: its memory on %s is not mapped"
				       : "no other device reaches the memory of region %s on %s",
			 region_title(region), region->device.id);
}

/* Under words_lock. A close waits for the work of the peers too: memory_ops.idle. */
static int region_reach_peer(struct gpuwm_region *region, const struct memory_device *peer, struct error *error)
{
	struct memory_device *device = &region->device;
	int r;

	if (peer->ordinal == device->ordinal)
		return 0;
	for (unsigned i = 0; i < device->peer_count; i++) {
		if (device->peers[i] == peer->ordinal)
			return 0;
	}
	r = device->ops->reaches(peer, device, error);
	if (r < 0)
		return r;
	if (device->peer_count == MEMORY_PEERS_MAX)
		return error_set(error, -ENOTSUP, NULL, "%d GPUs reach region %s already", MEMORY_PEERS_MAX,
				 region_title(region));
	r = device->ops->share_with(device, peer, &region->memory, region->writes ? MEMORY_WRITE : MEMORY_READ,
				    error);
	if (r == 0)
		device->peers[device->peer_count++] = peer->ordinal;
	return r;
}

static int reach_by(struct gpuwm_region *region, const char *name, struct error *error)
{
	struct memory_device peer;
	int r;

	if (!name)
		return error_set(error, -EINVAL, NULL, "no device was given");
	if (region->looks || !region->device.ops->share_with)
		return no_peers(region, error);
	r = memory_device_open(name, &peer, error);
	if (r < 0)
		return r;
	if (peer.ops != region->device.ops)
		return no_peers(region, error);
	pthread_mutex_lock(&region->words_lock);
	r = region_reach_peer(region, &peer, error);
	pthread_mutex_unlock(&region->words_lock);
	return r;
}

int gpuwm_region_reach(struct gpuwm_region *region, const char *device)
{
	struct error error;
	int r = region ? fork_check(&region->hook, &error)
		       : error_set(&error, -EINVAL, NULL, "no region was given");

	if (r == 0)
		r = reach_by(region, device, &error);
	return r < 0 ? client_fail(&error) : 0;
}
