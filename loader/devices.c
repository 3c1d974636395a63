#include "devices.h"

#include "device_kind.h"

#include <errno.h>
#include <stdlib.h>

int device_list_add(struct device_list *list, const struct device *device, struct error *error)
{
	struct device *devices = reallocarray(list->devices, list->count + 1, sizeof(*devices));

	if (!devices)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	list->devices = devices;
	devices[list->count++] = *device;
	return 0;
}

static void put(struct message_writer *w, const struct device *device)
{
	message_begin_map(w, NULL);
	message_put_text(w, "device", device->id);
	message_put_text(w, "kind", device->kind->name);
	message_put_text(w, "name", device->name);
	message_put_u64(w, "total", device->total);
	if (device->free_known)
		message_put_u64(w, "free", device->free);
	message_put_u64(w, "granularity", device->granularity);
	message_put_u64(w, "context", device->kind->context_bytes);
	message_end(w);
}

int devices_put(struct message_writer *w, struct error *error)
{
	struct device_list list = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && device_kinds[i]; i++)
		if (device_kinds[i]->list)
			r = device_kinds[i]->list(&list, error);
	if (r == 0) {
		message_begin_array(w, "devices");
		for (size_t i = 0; i < list.count; i++)
			put(w, &list.devices[i]);
		message_end(w);
	}
	free(list.devices);
	return r;
}
