#include "stage.h"

#include <errno.h>
#include <stdlib.h>

struct stage {
	const struct memory_device *device;
	struct wire *wire;
	unsigned places;
	enum wire_memory memory;
	size_t bytes;
	bool direct; /* messages are sent from where they are */
	struct stage_gpu *gpu; /* all places; made when the first is needed */
	void *buffers[STAGE_PLACES_MAX]; /* of the host; each is made when it is first needed */
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
	stage->memory = !stage->direct && wire_carries(wire, WIRE_CUDA) ? WIRE_CUDA : WIRE_HOST;
	stage->places = stage->memory == WIRE_CUDA ? STAGE_PLACES_GPU : STAGE_PLACES_MAX;
	*ret = stage;
	return 0;
}

struct stage *stage_free(struct stage *stage)
{
	if (!stage)
		return NULL;
	stage_gpu_free(stage->gpu);
	for (unsigned i = 0; i < stage->places; i++)
		free(stage->buffers[i]);
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

int stage_put(struct stage *stage, unsigned place, const void *data, size_t bytes, void **ret,
	      struct error *error)
{
	const size_t all = stage->places * stage->bytes;

	if (stage->direct) {
		*ret = (void *)data;
		return 0;
	}
	if (stage->memory == WIRE_CUDA) {
		if (!stage->gpu) {
			int r = stage_gpu_new(all, &stage->gpu, error);

			if (r < 0)
				return r;
			wire_register(stage->wire, stage_gpu_at(stage->gpu, 0), all, WIRE_CUDA);
		}
		*ret = stage_gpu_at(stage->gpu, place * stage->bytes);
		return stage_gpu_copy(stage->gpu, *ret, data, bytes, error);
	}
	if (!stage->buffers[place])
		stage->buffers[place] = malloc(stage->bytes);
	if (!stage->buffers[place])
		return error_set(error, -ENOMEM, NULL, "no memory to send %zu bytes", stage->bytes);
	*ret = stage->buffers[place];
	return stage->device->ops->read(stage->device, *ret, data, bytes, error);
}
