/* Versions that hold one byte all over, made where they lie: no file is that large on the GPU machines. */
#ifndef GPUWM_BENCH_PUBLISH_H
#define GPUWM_BENCH_PUBLISH_H

#include <gpuwm/client.h>

struct filling {
	const char *name, *device;
	uint64_t bytes, tensors; /* equal tensors of U8 */
	unsigned char byte;
};

/* Publishes it and waits until it is ready. On a GPU this makes a context in the process, which stays. */
void publish_filled(struct gpuwm_client *client, const struct filling *filling);

#endif
