#include "memory.h"

#include "../../proto/digest.h"

#include <errno.h>
#include <stdlib.h>

static int stopped(memory_progress_fn *progress, void *user_data, uint64_t bytes, struct error *error)
{
	if (progress && progress(bytes, user_data))
		return error_set(error, -ECANCELED, NULL, "the digest was stopped");
	return 0;
}

/* `buffer` NULL: the memory can be read where it is. */
static int digest_chunks(const struct memory_device *device, const uint8_t *from, uint64_t bytes, void *buffer,
			 memory_progress_fn *progress, void *user_data, struct digest_sum *sum,
			 struct error *error)
{
	for (uint64_t done = 0, size; done < bytes; done += size) {
		const void *data = from + done;
		int r = 0;

		size = bytes - done < MEMORY_CHUNK_BYTES ? bytes - done : MEMORY_CHUNK_BYTES;
		if (buffer) {
			r = device->ops->read(device, buffer, data, size, error);
			data = buffer;
		}
		if (r < 0)
			return r;
		digest_update(sum, done, data, size);
		r = stopped(progress, user_data, size, error);
		if (r < 0)
			return r;
	}
	return 0;
}

int memory_digest(const struct memory_device *device, const void *address, uint64_t bytes,
		  memory_progress_fn *progress, void *user_data, struct digest *ret, struct error *error)
{
	uint64_t size = bytes < MEMORY_CHUNK_BYTES ? bytes : MEMORY_CHUNK_BYTES;
	struct digest_sum sum = {0};
	void *buffer = NULL;
	int r;

	if (device->ops != &memory_host && bytes > 0) {
		buffer = malloc(size);
		if (!buffer)
			return error_set(error, -ENOMEM, NULL, "no room to read %zu bytes back", (size_t)size);
	}
	r = digest_chunks(device, address, bytes, buffer, progress, user_data, &sum, error);
	free(buffer);
	if (r == 0)
		*ret = digest_final(&sum, bytes);
	return r;
}
