#include "wire.h"

const struct wire_ops *const wires[] = {
#ifdef GPUWM_UCX
	&wire_ucx,
#endif
	NULL,
};
