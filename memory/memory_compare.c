/* Two pieces of mapped memory, byte by byte. A kernel compares those of a GPU; without it the CPU reads them back. */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct comparing {
	const struct memory_device *device;
	const struct memory_pair *pair;
	uint8_t *buffers[2]; /* NULL: the CPU reads the memory where it is */
	struct error *error;
};

/* Sets *ret to where the CPU can read the bytes. */
static int compare_fetch(const struct comparing *c, unsigned which, const void *from, uint64_t bytes,
			 const void **ret)
{
	*ret = c->buffers[which] ? c->buffers[which] : from;
	return c->buffers[which] ? c->device->ops->read(c->device, c->buffers[which], from, bytes, c->error)
				 : 0;
}

static int compare_pieces(const struct comparing *c, memory_progress_fn *progress, void *user_data,
			  bool *ret_equal)
{
	const void *a, *b;
	bool equal = true;
	int r = 0;

	for (uint64_t done = 0, bytes; r == 0 && equal && done < c->pair->bytes; done += bytes) {
		bytes = c->pair->bytes - done;
		bytes = bytes < MEMORY_CHUNK_BYTES ? bytes : MEMORY_CHUNK_BYTES;
		r = compare_fetch(c, 0, (const uint8_t *)c->pair->a + done, bytes, &a);
		if (r == 0)
			r = compare_fetch(c, 1, (const uint8_t *)c->pair->b + done, bytes, &b);
		if (r == 0)
			equal = memcmp(a, b, bytes) == 0;
		if (r == 0 && progress)
			r = progress(bytes, user_data);
	}
	if (r == 0)
		*ret_equal = equal;
	return r;
}

static int compare_read_back(struct comparing *c, memory_progress_fn *progress, void *user_data,
			     bool *ret_equal)
{
	uint8_t *room = malloc(2 * MEMORY_CHUNK_BYTES);
	int r;

	if (!room)
		return error_set(c->error, -ENOMEM, NULL, "no room to read %llu bytes back",
				 (unsigned long long)c->pair->bytes);
	c->buffers[0] = room;
	c->buffers[1] = room + MEMORY_CHUNK_BYTES;
	r = compare_pieces(c, progress, user_data, ret_equal);
	free(room);
	return r;
}

int memory_compare(const struct memory_device *device, const struct memory_pair *pair,
		   memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error)
{
	struct comparing c = {.device = device, .pair = pair, .error = error};
	int r;

	if (device->ops->cpu_addresses)
		return compare_pieces(&c, progress, user_data, ret_equal);
	r = device->ops->compare(device, pair, progress, user_data, ret_equal, error);
	return r == 1 ? compare_read_back(&c, progress, user_data, ret_equal) : r;
}
