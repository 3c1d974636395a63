#include "wire.h"

const struct wire_ops *const wires[] = {
#ifdef GPUWM_UCX
	&wire_gpus,
	&wire_rdma,
#endif
	&wire_tls,
	NULL,
};
