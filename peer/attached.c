#include "store.h"

#include "../proto/tier_kind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct attached_part {
	struct gpuwm_handles *handles;
	struct memory_segment *segments;
	struct served_segment *served;
	bool held; /* the device's context */
};

struct attached {
	uint32_t world;
	struct served_part *parts;
	struct attached_part *own; /* beside each part */
};

/* ---- one part ---- */

static void detach_part(struct served_part *part, struct attached_part *own)
{
	for (uint32_t i = 0; own->segments && i < part->segment_count; i++)
		part->device.ops->release(&part->device, &own->segments[i]);
	if (own->held)
		part->device.ops->unhold(&part->device);
	if (part->index)
		munmap((void *)(uintptr_t)part->index, part->index_bytes);
	gpuwm_handles_release(own->handles);
	free(own->segments);
	free(own->served);
}

static int map_index(struct served_part *part, const struct gpuwm_handles *handles, struct error *error)
{
	int fd = gpuwm_handles_index(handles, &part->index_bytes);
	void *index = mmap(NULL, part->index_bytes, PROT_READ, MAP_PRIVATE, fd, 0);

	if (index == MAP_FAILED)
		return error_set(error, -ENOMEM, NULL, "an index of %llu bytes can't be mapped",
				 (unsigned long long)part->index_bytes);
	part->index = index;
	return 0;
}

static int attach_part(struct gpuwm_client *client, const char *id, const char *device,
		       struct served_part *part, struct attached_part *own, struct error *error)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const struct gpuwm_version_info *info;
	const struct memory_ops *ops;
	uint64_t bytes;
	int fd, r;

	options.device = device;
	options.rank = part->rank;
	if (gpuwm_get_handles(client, id, &options, &own->handles) < 0)
		return gpuwmd_error(error);
	info = gpuwm_handles_version(own->handles);
	r = memory_device_open(info->device, &part->device, error);
	if (r < 0)
		return r;
	own->segments = calloc(info->segments + 1, sizeof(*own->segments));
	own->served = calloc(info->segments + 1, sizeof(*own->served));
	if (!own->segments || !own->served)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	for (uint32_t i = 0; i < info->segments; i++)
		own->segments[i].fd = -1;
	part->segments = own->served;
	part->segment_count = info->segments;
	r = map_index(part, own->handles, error);
	if (r < 0)
		return r;
	ops = part->device.ops;
	for (uint32_t i = 0; r == 0 && i < info->segments; i++) {
		fd = gpuwm_handles_segment(own->handles, i, &bytes);
		r = ops->import(&part->device, fd, bytes, false, &own->segments[i], error);
		if (r == 0)
			r = ops->map(&part->device, &own->segments[i], MEMORY_READ, error);
		own->served[i] = (struct served_segment){own->segments[i].address, bytes};
	}
	if (r == 0)
		r = ops->hold(&part->device, error);
	own->held = r == 0;
	return r;
}

/* ---- all ---- */

static int attach_all(struct attached *attached, struct gpuwm_client *client, const struct listing *listing,
		      size_t position, struct error *error)
{
	char id[VERSION_ID_TEXT];
	struct listed listed;
	const char *device;
	enum tier tier;
	int r = 0;

	listing_at(listing, position, &listed);
	/* An attach to a version on a lower tier begins its promotion. Another node may not move this node's versions. */
	if (tier_find(listed.version.tier, &tier) < 0 || !tier_is_resident(tier))
		return error_set(error, -EAGAIN, "promote it there first (gpuwmctl promote)",
				 "%s@%s lies on %s there, and only versions on their devices are served",
				 listed.version.model, listed.version.tag, listed.version.tier);
	hex128_format(listed.id.bytes, id);
	attached->world = (uint32_t)listed.version.world;
	attached->parts = calloc(attached->world, sizeof(*attached->parts));
	attached->own = calloc(attached->world, sizeof(*attached->own));
	if (!attached->parts || !attached->own)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	for (uint32_t i = 0; r == 0 && i < attached->world; i++) {
		attached->parts[i].rank = i;
		device = listing_device(listing, position, i);
		if (!device)
			r = error_set(error, -ENOENT, NULL, "rank %u of %s@%s lies on no device", i,
				      listed.version.model, listed.version.tag);
		else
			r = attach_part(client, id, device, &attached->parts[i], &attached->own[i], error);
	}
	return r;
}

int attached_new(struct gpuwmd *gpuwmd, const struct listing *listing, size_t position, struct attached **ret,
		 struct error *error)
{
	struct attached *attached = calloc(1, sizeof(*attached));
	struct gpuwm_client *client;
	int r = attached ? gpuwmd_client(gpuwmd, &client, error)
			 : error_set(error, -ENOMEM, NULL, "out of memory");

	if (r == 0)
		r = attach_all(attached, client, listing, position, error);
	if (r < 0)
		attached_free(attached);
	else
		*ret = attached;
	return r;
}

struct attached *attached_free(struct attached *attached)
{
	if (!attached)
		return NULL;
	for (uint32_t i = 0; attached->parts && attached->own && i < attached->world; i++) {
		if (attached->own[i].handles)
			detach_part(&attached->parts[i], &attached->own[i]);
	}
	free(attached->parts);
	free(attached->own);
	free(attached);
	return NULL;
}

const struct served_part *attached_parts(const struct attached *attached)
{
	return attached->parts;
}
