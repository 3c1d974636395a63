/* Words that streams write and wait for: the rows of memory_ops with these names. */
#ifndef GPUWM_LIB_CUDA_WORDS_H
#define GPUWM_LIB_CUDA_WORDS_H

#include "memory.h"

int cuda_register_words(const struct memory_device *device, void *base, uint64_t bytes, struct error *error);
void cuda_unregister_words(const struct memory_device *device, void *base);
int cuda_write_word(const struct memory_device *device, void *stream, void *word, uint64_t value,
		    struct error *error);
int cuda_wait_word(const struct memory_device *device, void *stream, void *word, uint64_t value,
		   struct error *error);

#endif
