#include "devices.h"

#include "probe.h"

#include <errno.h>
#include <stdlib.h>

#ifndef GPUWM_CUDA
void probe_cuda(struct probe_peer *peer)
{
	(void)peer;
	probe_say("driver", "", PROBE_NO, "this gpuwm-loader was built without CUDA",
		  "build gpuwm where cuda.h is (make CUDA_HOME=...)");
}

const struct device_kind device_cuda = {.kind = &kind_cuda, .probe = probe_cuda};
#endif

int device_list_add(struct device_list *list, const struct device *device, struct error *error)
{
	struct device *devices = reallocarray(list->devices, list->count + 1, sizeof(*devices));

	if (!devices)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	list->devices = devices;
	devices[list->count++] = *device;
	return 0;
}

void devices_found_clear(struct devices_found *found)
{
	free(found->list.devices);
	free(found->told);
}

int devices_find(struct devices_found *ret, struct error *error)
{
	struct devices_found found = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && device_kinds[i]; i++)
		if (device_kinds[i]->list)
			r = device_kinds[i]->list(&found.list, error);
	if (r == 0)
		found.told = calloc(found.list.count, sizeof(*found.told));
	if (r == 0 && !found.told)
		r = error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (r < 0) {
		devices_found_clear(&found);
		return r;
	}
	for (size_t i = 0; i < found.list.count; i++) {
		const struct device *device = &found.list.devices[i];

		found.told[i] = (struct device_found){.device = device->id,
						      .kind = device->kind->name,
						      .name = device->name,
						      .total = device->total,
						      .free = device->free_known ? &device->free : NULL,
						      .granularity = device->granularity,
						      .context = device->kind->context_bytes};
	}
	*ret = found;
	return 0;
}

const struct device_kind *device_kind_of(const struct memory_kind *kind)
{
	size_t i = 0;

	while (device_kinds[i] && device_kinds[i]->kind != kind)
		i++;
	return device_kinds[i];
}

int device_total(const char *id, uint64_t *ret_bytes, struct error *error)
{
	const struct device_kind *kind = device_kind_of(memory_kind_of(id));

	if (!kind || !kind->total)
		return error_set(error, -ENOTSUP, NULL, "gpuwm-loader can't use memory of the kind of %s", id);
	return kind->total(id, ret_bytes, error);
}
