#include "stage.h"

#include "../memory/memory_ipc.h"

#include <errno.h>
#include <stdlib.h>

/* Of the host: made when it is first needed, and made anew for a larger message. */
struct host_buffer {
	void *data;
	size_t bytes;
	bool pinned; /* the driver copies into it 5 times as fast */
};

struct stage {
	const struct memory_device *device;
	struct wire *wire;
	unsigned places;
	enum wire_memory memory;
	size_t bytes; /* of the largest message */
	bool direct; /* messages are sent from where they are */
	/* Of a GPU: all places, which are made when the first is needed. One allocation: a receiver opens each that it meets, which takes
	 * milliseconds. The stream is its own: the default one has the copies of all threads, as of those that hash. */
	char *gpu;
	void *stream;
	struct host_buffer buffers[STAGE_PLACES_MAX];
};

int stage_new(const struct memory_device *device, struct wire *wire, size_t bytes, struct stage **ret,
	      struct error *error)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	if (!stage)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	stage->device = device;
	stage->wire = wire;
	stage->bytes = bytes;
	stage->direct = device->ops->cpu_addresses;
	stage->memory = device->ops->ipc && wire_carries(wire, WIRE_CUDA) ? WIRE_CUDA : WIRE_HOST;
	stage->places = stage->memory == WIRE_CUDA ? STAGE_PLACES_GPU : STAGE_PLACES_MAX;
	*ret = stage;
	return 0;
}

static void buffer_free(struct stage *stage, struct host_buffer *buffer)
{
	if (buffer->pinned)
		stage->device->ops->unpin(buffer->data);
	free(buffer->data);
	*buffer = (struct host_buffer){0};
}

struct stage *stage_free(struct stage *stage)
{
	if (!stage)
		return NULL;
	if (stage->memory == WIRE_CUDA) {
		stage->device->ops->ipc->stream_close(stage->stream);
		stage->device->ops->ipc->free(stage->gpu);
	}
	for (unsigned i = 0; i < stage->places; i++)
		buffer_free(stage, &stage->buffers[i]);
	free(stage);
	return NULL;
}

unsigned stage_places(const struct stage *stage)
{
	return stage->places;
}

enum wire_memory stage_memory(const struct stage *stage)
{
	return stage->memory;
}

static int stage_begin_gpu(struct stage *stage, struct error *error)
{
	const struct memory_ipc_ops *ipc = stage->device->ops->ipc;
	const size_t bytes = stage->places * stage->bytes;
	void *memory;
	int r = stage->stream ? 0 : ipc->stream_open(&stage->stream, error);

	if (r == 0)
		r = ipc->alloc(bytes, &memory, error);
	if (r < 0)
		return r;
	stage->gpu = memory;
	wire_register(stage->wire, memory, bytes, WIRE_CUDA);
	return 0;
}

static int buffer_make(struct stage *stage, struct host_buffer *buffer, size_t bytes, struct error *error)
{
	struct error refused;

	if (buffer->bytes >= bytes)
		return 0;
	buffer_free(stage, buffer);
	buffer->data = malloc(bytes);
	if (!buffer->data)
		return error_set(error, -ENOMEM, NULL, "no memory to send %zu bytes", bytes);
	buffer->bytes = bytes;
	buffer->pinned = stage->device->ops->pin && stage->device->ops->pin(buffer->data, bytes, &refused) == 0;
	return 0;
}

int stage_put(struct stage *stage, unsigned place, const void *data, size_t bytes, void **ret,
	      struct error *error)
{
	int r;

	if (stage->direct) {
		*ret = (void *)data;
		return 0;
	}
	if (stage->memory == WIRE_CUDA) {
		r = stage->gpu ? 0 : stage_begin_gpu(stage, error);
		if (r < 0)
			return r;
		*ret = stage->gpu + place * stage->bytes;
		return stage->device->ops->ipc->copy(stage->stream, *ret, data, bytes, error);
	}
	r = buffer_make(stage, &stage->buffers[place], bytes, error);
	if (r < 0)
		return r;
	*ret = stage->buffers[place].data;
	return stage->device->ops->read(stage->device, *ret, data, bytes, error);
}
