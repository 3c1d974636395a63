#include "publish.h"

#include "../bench.h"
#include "ceiling.h"
#include "driver.h"
#include "operate.h"

static void fill_host(struct gpuwm_publish *publish, const struct filling *filling)
{
	uint64_t bytes;
	void *data;

	for (size_t i = 0; i < filling->tensors; i++) {
		OK(gpuwm_publish_memory(publish, i, &data, &bytes));
		memset(data, filling->byte, bytes);
	}
}

#ifdef GPUWM_CUDA
static void fill_gpu(struct gpuwm_publish *publish, const struct filling *filling)
{
	uint64_t bytes;
	void *data;

	driver_open(filling->device);
	driver_context();
	for (size_t i = 0; i < filling->tensors; i++) {
		OK(gpuwm_publish_memory(publish, i, &data, &bytes));
		CU(driver.cuMemsetD8_v2((CUdeviceptr)data, filling->byte, bytes));
	}
	CU(driver.cuCtxSynchronize());
}
#else
static void fill_gpu(struct gpuwm_publish *publish, const struct filling *filling)
{
	(void)publish;
	DIE("built without CUDA: %s", filling->device);
}
#endif

void publish_filled(struct gpuwm_client *client, const struct filling *filling)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_tensor_spec *specs = calloc(filling->tensors, sizeof(*specs));
	char(*names)[48] = calloc(filling->tensors, sizeof(*names));
	uint64_t shape = filling->bytes / filling->tensors;
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;

	if (!specs || !names)
		DIE("out of memory");
	for (uint64_t i = 0; i < filling->tensors; i++) {
		snprintf(names[i], sizeof(names[i]), "layers.%06llu.weight", (unsigned long long)i);
		specs[i] = (struct gpuwm_tensor_spec){
			.name = names[i], .dtype = GPUWM_U8, .ndim = 1, .shape = &shape};
	}
	options.name = filling->name;
	options.device = filling->device;
	OK(gpuwm_publish_begin(client, &options, specs, filling->tensors, &publish));
	is_gpu(filling->device) ? fill_gpu(publish, filling) : fill_host(publish, filling);
	OK(gpuwm_publish_commit(publish, &version));
	free(specs);
	free(names);
}
