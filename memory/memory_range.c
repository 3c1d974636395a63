/* Where the segments of one part lie in their range of addresses. */
#include "memory.h"

uint64_t memory_range_bytes(const struct memory_device *device, const struct memory_segment *segments,
			    uint32_t count)
{
	const uint64_t spacing = device->ops->spacing;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (segments[i].bytes > INT64_MAX - spacing - bytes)
			return 0;
		bytes += (segments[i].bytes + spacing - 1) / spacing * spacing;
	}
	return bytes;
}

void *memory_range_at(const struct memory_device *device, const struct memory_range *range,
		      const struct memory_segment *segments, uint32_t position)
{
	return (char *)range->base + memory_range_bytes(device, segments, position);
}
