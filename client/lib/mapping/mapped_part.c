#include "mapped_part.h"

#include "../key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct mapped_part *parts; /* under fork_lock; atomic: a signal's handler reads it without the lock */

static bool part_is(const struct mapped_part *part, const struct grant *grant,
		    const struct memory_device *device, const struct subset *subset)
{
	return part->generation == fork_generation() && !part->device.private_writes &&
	       !device->private_writes && mapped_part_is_copy(part, grant->copy) &&
	       subset_is(&part->subset, subset) && part->rank == grant->version.rank &&
	       strcmp(part->version, grant->version.id) == 0 && strcmp(part->device.id, device->id) == 0 &&
	       part->device.peer_count == device->peer_count &&
	       memcmp(part->device.peers, device->peers, sizeof(int) * device->peer_count) == 0;
}

static void close_in_child(void *object)
{
	struct mapped_part *part = object;

	part->device.ops->close_fds(part->segments, part->segment_count);
	if (part->others)
		part->device.ops->close_fds(part->others, part->segment_count);
}

/* Of a part that is not in the table. */
static void part_name(struct mapped_part *part, const struct gpuwm_version_info *version)
{
	strcpy(part->version, version->id);
	part->rank = version->rank;
	snprintf(part->label, sizeof(part->label), "%s@%s", version->model, version->tag);
}

static void part_link(struct mapped_part *part)
{
	part->next = parts;
	__atomic_store_n(&parts, part, __ATOMIC_RELEASE);
}

const struct mapped_part *mapped_part_first(void)
{
	return __atomic_load_n(&parts, __ATOMIC_ACQUIRE);
}

/* One that is lost is not there. */
static void part_unlink(struct mapped_part *part)
{
	struct mapped_part **link = &parts;

	while (*link && *link != part)
		link = &(*link)->next;
	if (*link)
		*link = part->next;
}

static void part_set_up(struct mapped_part *part, const struct memory_device *device)
{
	part->generation = fork_generation();
	part->device = *device;
	pthread_mutex_init(&part->lock, NULL);
	fork_watch(&part->hook, close_in_child, part);
}

/* Finds or makes the entry, with one more use. */
static struct mapped_part *part_get(const struct grant *grant, const struct memory_device *device,
				    const struct subset *subset)
{
	struct mapped_part *part;

	fork_lock();
	for (part = parts; part && !part_is(part, grant, device, subset); part = part->next)
		;
	if (!part)
		part = calloc(1, sizeof(*part));
	if (part && part->uses++ == 0) {
		part_set_up(part, device);
		part->subset = *subset;
		part->copied = grant->copy;
		if (grant->copy)
			part->copy_event = grant->copy->event;
		part_name(part, &grant->version);
		part_link(part);
	}
	fork_unlock();
	return part;
}

/* True when it was the last use: the entry is out of the table then. */
static bool part_put(struct mapped_part *part)
{
	bool last;

	fork_lock();
	last = --part->uses == 0;
	if (last)
		part_unlink(part);
	fork_unlock();
	return last;
}

static void segments_free(const struct memory_device *device, struct memory_segment *segments, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		device->ops->release(device, &segments[i]);
	free(segments);
}

static void part_unmap(struct mapped_part *part)
{
	const struct memory_device *device = &part->device;
	struct memory_segment *segments = part->segments;
	uint32_t count = part->segment_count;

	if (part->copied)
		memory_ipc_close(device, segments, count);
	device->ops->unreserve(device, &part->range, segments, count);
	/* A child that is made now must not close them a second time, nor find the array gone. */
	fork_lock();
	device->ops->close_fds(segments, count);
	part->segments = NULL;
	part->segment_count = 0;
	fork_unlock();
	segments_free(device, segments, count);
	if (part->mapped)
		index_map_close(&part->index);
	part->mapped = false;
}

void mapped_part_free(struct mapped_part *part)
{
	part_unmap(part);
	fork_unwatch(&part->hook);
	if (part->held)
		part->device.ops->unhold(&part->device);
	pthread_mutex_destroy(&part->lock);
	free(part);
}

/* Of segments that are not mapped. */
static void part_let_go(struct mapped_part *part)
{
	fork_lock();
	part->device.ops->close_fds(part->segments, part->segment_count);
	fork_unlock();
	for (uint32_t i = 0; i < part->segment_count; i++)
		part->device.ops->release(&part->device, &part->segments[i]);
}

static int segments_new(uint32_t count, struct memory_segment **ret, struct error *error)
{
	struct memory_segment *segments = calloc((size_t)count + 1, sizeof(*segments));

	if (!segments)
		return error_set(error, -ENOMEM, NULL, "out of memory for %u segments", count);
	for (uint32_t i = 0; i < count; i++)
		segments[i].fd = -1;
	*ret = segments;
	return 0;
}

/* Into segments of the part: a child closes what they keep open. */
static int part_import(const struct mapped_part *part, const struct grant *grant, struct memory_segment *to,
		       struct error *error)
{
	const struct memory_device *device = &part->device;
	int r = 0;

	for (uint32_t i = 0; i < grant->version.segments && r == 0; i++) {
		const struct part_fd *from = &grant->part.segments[i];

		if (subset_has(&part->subset, i))
			r = device->ops->import(device, from->fd, from->bytes, false, to++, error);
	}
	return r;
}

/* From here on a child closes what they keep open. */
static void part_take(struct mapped_part *part, struct memory_segment *segments, uint32_t count)
{
	fork_lock();
	part->segments = segments;
	part->segment_count = count;
	fork_unlock();
}

static int part_map_all(struct mapped_part *part, void *address, struct error *error)
{
	const struct memory_device *device = &part->device;
	uint64_t bytes = memory_range_bytes(device, part->segments, part->segment_count);
	int r;

	if (part->segment_count == 0)
		return 0;
	if (bytes == 0)
		return error_set(error, -EPROTO, NULL, "get_handles: segments larger than any memory");
	r = device->ops->reserve(device, bytes, address, &part->range, error);
	if (r < 0)
		return r;
	return device->ops->map_all(device, &part->range, part->segments, part->segment_count, error);
}

/* Under part->lock. */
static int part_map(struct mapped_part *part, struct grant *grant, const struct index_map *index, void *address,
		    struct error *error)
{
	struct memory_segment *segments;
	int r = segments_new(part->subset.count, &segments, error);

	if (r < 0)
		return r;
	part_take(part, segments, part->subset.count);
	if (grant->copy) {
		r = mapped_part_open_copy(part, grant->copy, segments, error);
	} else {
		r = part_import(part, grant, segments, error);
		if (r == 0)
			r = part_map_all(part, address, error);
	}
	if (r < 0) {
		part_unmap(part);
		return r;
	}
	part->index = *index;
	part->mapped = true;
	return 0;
}

/* Where the memory was. Under part->lock. */
static int part_map_again(struct mapped_part *part, const struct grant *grant, struct error *error)
{
	const struct memory_device *device = &part->device;
	int r = part_import(part, grant, part->segments, error);

	if (r == 0 && part->segment_count > 0)
		r = device->ops->map_all(device, &part->range, part->segments, part->segment_count, error);
	part->vacated = r < 0;
	if (r < 0)
		part_let_go(part);
	return r;
}

static void part_count_parked(struct mapped_part *part, int more)
{
	fork_lock();
	part->parked += (unsigned)more;
	fork_unlock();
}

static bool part_is_parked(const struct mapped_part *part)
{
	bool all;

	fork_lock();
	all = part->uses > 0 && part->parked == part->uses;
	fork_unlock();
	return all;
}

/* The segments that were vacated. */
static void part_put_back(struct mapped_part *part, struct error *error)
{
	part->lost = part->device.ops->map_all(&part->device, &part->range, part->segments, part->segment_count,
					       error) < 0;
	part->vacated = false;
}

/* The segments stay, so that they can be put back. Under part->lock. */
static int part_vacate(struct mapped_part *part, struct error *error)
{
	const struct memory_device *device = &part->device;
	struct error unused;
	int r = device->ops->idle(device, error);

	if (r == 0)
		r = device->ops->vacate(device, &part->range, part->segments, part->segment_count, error);
	if (r < 0)
		return r;
	part->vacated = true;
	if (part->segment_count > 0 && device->ops->blank)
		r = device->ops->blank(&part->range, error);
	if (r < 0)
		part_put_back(part, &unused);
	return r;
}

/* Maps on the first use. Takes the index, or closes it. */
static int part_ready(struct mapped_part *part, struct grant *grant, struct index_map *index, void *address,
		      struct error *error)
{
	bool mapped;
	int r = 0;

	/* Of two threads that attach the same at once, the second finds it
	 * mapped; when the first failed, the second tries with its own lease. */
	pthread_mutex_lock(&part->lock);
	mapped = part->mapped;
	if (!mapped)
		r = part_map(part, grant, index, address, error);
	else if (part->vacated)
		r = part_map_again(part, grant, error);
	pthread_mutex_unlock(&part->lock);
	if (mapped || r < 0)
		index_map_close(index);
	return r;
}

static int part_open_device(const struct grant *grant, const struct gpuwm_attach_options *options,
			    struct memory_device *ret, struct error *error)
{
	int r = memory_device_open(grant->version.device, ret, error);

	if (r < 0)
		return r;
	if (options->private_writes && !ret->ops->private_writes)
		return error_set(error, -ENOTSUP,
				 "attach without private writes, and copy what is to be written",
				 "a GPU has no copy on write: nobody can write into %s@%s privately",
				 grant->version.model, grant->version.tag);
	ret->private_writes = options->private_writes;
	return memory_device_peers(ret, options->peers, options->peer_count, error);
}

int mapped_part_use(struct grant *grant, const struct gpuwm_attach_options *options, struct mapped_part **ret,
		    struct error *error)
{
	struct memory_device device;
	struct mapped_part *part = NULL;
	struct index_map index;
	struct subset subset;
	int r = part_open_device(grant, options, &device, error);

	if (r == 0)
		r = grant_describe(grant, &index, error);
	if (r < 0)
		return r;
	r = key_compare(&index.view, &grant->version, options->key, options->key_count, error);
	if (r == 0)
		r = subset_of(&index.view, options->globs, options->glob_count, &subset, error);
	if (r == 0)
		part = part_get(grant, &device, &subset);
	if (r == 0 && !part)
		r = error_set(error, -ENOMEM, NULL, "out of memory for a mapping");
	if (r < 0) {
		index_map_close(&index);
		return r;
	}
	r = part_ready(part, grant, &index, options->address, error);
	if (r == 0)
		*ret = part;
	else if (part_put(part))
		mapped_part_free(part);
	return r;
}

/* The others of a part, which are parked, do not keep it mapped. Fails with -EBUSY. */
static int part_rest(struct mapped_part *part, struct error *error)
{
	int r = 0;

	pthread_mutex_lock(&part->lock);
	if (part_is_parked(part) && part->mapped && !part->vacated) {
		r = part_vacate(part, error);
		if (r == 0)
			part_let_go(part);
	}
	pthread_mutex_unlock(&part->lock);
	return r == -EBUSY ? r : 0;
}

int mapped_part_leave(struct mapped_part *part, struct error *error)
{
	if (!part_put(part)) {
		int r = part_rest(part, error);

		if (r < 0) {
			fork_lock();
			part->uses++;
			fork_unlock();
		}
		return r;
	}
	/* Any other failure means that the context is broken: nothing runs in it
	 * any more, so the memory can go. */
	if (part->vacated || part->device.ops->idle(&part->device, error) != -EBUSY)
		return 1;
	fork_lock();
	part->uses = 1;
	if (part->mapped && !part->lost)
		part_link(part);
	fork_unlock();
	return -EBUSY;
}

int mapped_part_drop(struct mapped_part *part, struct error *error)
{
	int r = mapped_part_leave(part, error);

	if (r == 1)
		mapped_part_free(part);
	return r < 0 ? r : 0;
}

/* ---- made by this process ---------------------------------------------- */

struct mapped_part *mapped_part_new(const struct memory_device *device)
{
	struct mapped_part *part = calloc(1, sizeof(*part));

	if (part) {
		part_set_up(part, device);
		part->uses = 1;
	}
	return part;
}

void mapped_part_take(struct mapped_part *part, const struct memory_range *range,
		      struct memory_segment *segments, uint32_t count, bool held)
{
	part->range = *range;
	part->held = held;
	part_take(part, segments, count);
}

void mapped_part_become(struct mapped_part *part, const struct gpuwm_version_info *version,
			const struct index_map *index, const struct subset *all)
{
	part->index = *index;
	part->subset = *all;
	part->mapped = true;
	fork_lock();
	part_name(part, version);
	part_link(part);
	fork_unlock();
}

/* ---- parking ----------------------------------------------------------- */

int mapped_part_park(struct mapped_part *part, struct gpuwm_client *client, struct lease *lease, uint64_t room,
		     struct error *error)
{
	struct error unused;
	bool all;
	int r = 0;

	pthread_mutex_lock(&part->lock);
	part_count_parked(part, 1);
	all = part_is_parked(part);
	if (all)
		r = part_vacate(part, error);
	if (r == 0) {
		r = lease_park(client, lease, room, error);
		if (all && r == 0)
			part_let_go(part);
		else if (all)
			part_put_back(part, &unused);
	}
	if (r < 0)
		part_count_parked(part, -1);
	pthread_mutex_unlock(&part->lock);
	return r;
}

int mapped_part_unpark(struct mapped_part *part, const struct grant *grant, struct error *error)
{
	int r = 0;

	pthread_mutex_lock(&part->lock);
	if (part->vacated)
		r = part_map_again(part, grant, error);
	if (r == 0)
		part_count_parked(part, -1);
	pthread_mutex_unlock(&part->lock);
	return r;
}

void mapped_part_forget_parked(struct mapped_part *part)
{
	part_count_parked(part, -1);
}

/* ---- switching --------------------------------------------------------- */

bool mapped_part_is_shared(const struct mapped_part *part)
{
	bool shared;

	fork_lock();
	shared = part->uses > 1;
	fork_unlock();
	return shared;
}

bool mapped_part_claim(struct mapped_part *part)
{
	bool shared;

	fork_lock();
	shared = mapped_part_is_shared(part);
	if (!shared)
		part_unlink(part);
	fork_unlock();
	return !shared;
}

void mapped_part_unclaim(struct mapped_part *part)
{
	fork_lock();
	if (!part->lost)
		part_link(part);
	fork_unlock();
}

/* The addresses stay; the segments become the others, and these are to be freed. */
static int part_remap(struct mapped_part *part, struct error *error)
{
	const struct memory_device *device = &part->device;
	struct memory_segment *now = part->segments, *next = part->others;
	const uint32_t count = part->segment_count;
	int r;

	if (part->lost)
		r = device->ops->map_all(device, &part->range, next, count, error);
	else
		r = device->ops->remap_all(device, &part->range, now, next, count, error);
	if (r == 0) {
		fork_lock();
		part->segments = next;
		part->others = now;
		fork_unlock();
	}
	part->lost = r < 0 && count > 0 && !now[0].address;
	return r;
}

static void part_free_others(struct mapped_part *part)
{
	struct memory_segment *others = part->others;

	fork_lock();
	part->device.ops->close_fds(others, part->segment_count);
	part->others = NULL;
	fork_unlock();
	segments_free(&part->device, others, part->segment_count);
}

/* The part is nobody else's. */
static int switch_claimed(struct mapped_part *part, const struct grant *grant, const struct index_map *index,
			  bool idle, struct error *error)
{
	const struct memory_device *device = &part->device;
	struct memory_segment *segments;
	int r = idle ? 0 : device->ops->idle(device, error);

	if (r == 0)
		r = segments_new(part->segment_count, &segments, error);
	if (r < 0)
		return r;
	fork_lock();
	part->others = segments;
	fork_unlock();
	r = part_import(part, grant, segments, error);
	if (r < 0) {
		part_free_others(part);
		return r;
	}
	r = part_remap(part, error);
	part_free_others(part);
	if (part->lost)
		return error_set(error, -ENOTRECOVERABLE, "let it go, or switch again",
				 "the old version could not be put back after this: %s", error->message);
	if (r < 0)
		return r;
	index_map_close(&part->index);
	part->index = *index;
	return 0;
}

int mapped_part_switch(struct mapped_part *part, const struct grant *grant, const struct index_map *index,
		       bool idle, struct error *error)
{
	int r;

	if (!mapped_part_claim(part))
		return error_set(error, -EBUSY, "let the others go, or attach the new version beside it",
				 "another attachment of this process shares the mapping");
	pthread_mutex_lock(&part->lock);
	r = switch_claimed(part, grant, index, idle, error);
	pthread_mutex_unlock(&part->lock);
	if (r == 0)
		part_name(part, &grant->version);
	mapped_part_unclaim(part);
	return r;
}
