#include "device_kind.h"

#include <errno.h>

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
