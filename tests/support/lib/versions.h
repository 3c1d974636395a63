/* Versions for the fake gpuwmd: of several segments, each byte of which is the same. */
#ifndef GPUWM_TESTS_LIB_VERSIONS_H
#define GPUWM_TESTS_LIB_VERSIONS_H

#include "memory/memory.h"
#include "gpuwm/client.h"
#include "proto/index/index.h"
#include "tests/support/lib/fake.h"

/* Of one version; a test changes what it is about. Three tensors, in two segments. */
struct made {
	const char *tag;
	uint8_t fill;
	const char *names[3];
	unsigned dtype, ndim; /* of the middle one, which has 200 elements */
	uint64_t shape[2];
	int64_t strides[2];
	uint64_t offset; /* its */
	uint64_t units[2]; /* sizes of the segments, in granularities */
	size_t tensors, segments;
	bool lies; /* the digests are of other bytes */
};

struct made made_default(const char *tag, uint8_t fill);

/* Makes the version on this device and gives it to the fake gpuwmd, which owns it. */
struct fake_version *made_add(struct fake *of, const struct memory_device *device, const struct made *made);

/* Returns the byte that every tensor is full of, or -1 if there is more than one. */
int filled_with(const struct gpuwm_mapping *mapping);

#endif
