/* What the CUDA row of memory_ops is made of: the rows with these names. */
#ifndef GPUWM_LIB_CUDA_MEMORY_H
#define GPUWM_LIB_CUDA_MEMORY_H

#include "memory.h"

/* The primary context of a GPU, and what waits for the work in it. */
int cuda_context_hold(const struct memory_device *device, struct error *error);
void cuda_context_unhold(const struct memory_device *device);
int cuda_context_enter(const struct memory_device *device, struct error *error);
void cuda_context_leave(const struct memory_device *device);
int cuda_context_idle(const struct memory_device *device, struct error *error);
void cuda_context_background(const struct memory_device *device);

/* Memory of a GPU at addresses. */
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

/* What a stream does for the CPU: it writes words, waits for them, and calls functions. */
int cuda_register_words(const struct memory_device *device, void *base, uint64_t bytes, struct error *error);
void cuda_unregister_words(const struct memory_device *device, void *base);
int cuda_write_word(const struct memory_device *device, void *stream, void *word, uint64_t value,
		    struct error *error);
int cuda_wait_word(const struct memory_device *device, void *stream, void *word, uint64_t value,
		   struct error *error);
int cuda_call_in_stream(const struct memory_device *device, void *stream, void (*fn)(void *user_data),
			void *user_data, struct error *error);
bool cuda_is_broken(const struct memory_device *device);

#endif
