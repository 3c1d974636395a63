/* Memory of a GPU at addresses: the rows of memory_ops with these names. */
#ifndef GPUWM_LIB_CUDA_MAP_H
#define GPUWM_LIB_CUDA_MAP_H

#include "memory.h"

int cuda_reserve(const struct memory_device *device, uint64_t bytes, void *wish, struct memory_range *ret,
		 struct error *error);
int cuda_map_all(const struct memory_device *device, const struct memory_range *range,
		 struct memory_segment *segments, uint32_t count, struct error *error);
int cuda_vacate(const struct memory_device *device, const struct memory_range *range,
		struct memory_segment *segments, uint32_t count, struct error *error);
int cuda_remap_all(const struct memory_device *device, const struct memory_range *range,
		   struct memory_segment *now, struct memory_segment *next, uint32_t count,
		   struct error *error);
int cuda_reaccess(const struct memory_device *device, const struct memory_range *range,
		  struct memory_segment *segments, uint32_t count, enum memory_access access,
		  struct error *error);
void cuda_unreserve(const struct memory_device *device, struct memory_range *range,
		    struct memory_segment *segments, uint32_t count);
int cuda_map_at(const struct memory_device *device, void *address, struct memory_segment *segment,
		enum memory_access access, struct error *error);
int cuda_map(const struct memory_device *device, struct memory_segment *segment, enum memory_access access,
	     struct error *error);
int cuda_share_with(const struct memory_device *device, const struct memory_device *peer,
		    const struct memory_segment *segment, enum memory_access access, struct error *error);
void cuda_unmap(const struct memory_device *device, struct memory_segment *segment);

#endif
