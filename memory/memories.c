#include "memory.h"

const struct memory_ops *const memories[] = {
	&memory_host,
	&memory_cuda,
	NULL,
};
