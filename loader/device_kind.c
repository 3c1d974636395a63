#include "device_kind.h"

const struct device_kind *device_kind_of(const struct memory_kind *kind)
{
	size_t i = 0;

	while (device_kinds[i] && device_kinds[i]->kind != kind)
		i++;
	return device_kinds[i];
}
