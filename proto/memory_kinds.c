#include "memory_kind.h"

#include <stddef.h>

const struct memory_kind *const memory_kinds[] = {
	&kind_host,
	&kind_cuda,
	NULL,
};
