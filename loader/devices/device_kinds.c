#include "devices.h"

const struct device_kind *const device_kinds[] = {
	&device_host,
	&device_cuda,
	NULL,
};
