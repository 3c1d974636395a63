/* What a stream does for the CPU: it writes words, waits for them, and calls functions. These are the rows of memory_ops with these
 * names. */
#ifndef GPUWM_LIB_CUDA_WORDS_H
#define GPUWM_LIB_CUDA_WORDS_H

#include "memory.h"

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
