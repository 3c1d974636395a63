#include "region.h"

#include <errno.h>

bool region_words_exist(const struct gpuwm_region *region)
{
	return region->device.ops && region->device.ops->register_words;
}

/* Under words_lock. */
static int words_begin(struct gpuwm_region *region, struct error *error)
{
	const struct memory_device *device = &region->device;
	int r;

	if (region->words)
		return 0;
	r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = device->ops->register_words(device, region->control.head,
					control_bytes(control_shape(&region->control)), error);
	device->ops->leave(device);
	region->words = r == 0;
	return r;
}

static int words_prepare(struct gpuwm_region *region, struct error *error)
{
	int r;

	if (!region_words_exist(region))
		return error_set(error, -ENOTSUP, "call the function without _in_stream",
				 "region %s is on %s, which has no streams", region_title(region),
				 region->device.id);
	pthread_mutex_lock(&region->words_lock);
	r = words_begin(region, error);
	pthread_mutex_unlock(&region->words_lock);
	return r;
}

int region_words_write(struct gpuwm_region *region, void *stream, _Atomic uint64_t *word, uint64_t value,
		       struct error *error)
{
	int r = words_prepare(region, error);

	return r < 0 ? r : region->device.ops->write_word(&region->device, stream, (void *)word, value, error);
}

int region_words_wait(struct gpuwm_region *region, void *stream, _Atomic uint64_t *word, uint64_t value,
		      struct error *error)
{
	int r = words_prepare(region, error);

	return r < 0 ? r : region->device.ops->wait_word(&region->device, stream, (void *)word, value, error);
}

int region_words_end(struct gpuwm_region *region, struct error *error)
{
	const struct memory_device *device = &region->device;
	int r = device->ops->idle(device, error);

	if (r == -EIO) /* nothing runs any more in a broken context */
		r = 0;
	if (r < 0 || !region->words)
		return r;
	r = device->ops->enter(device, error);
	if (r == 0) {
		device->ops->unregister_words(device, region->control.head);
		device->ops->leave(device);
	}
	region->words = false;
	return 0;
}
