/* The primary context of a GPU, and what waits for the work in it: the rows of memory_ops with these names. */
#ifndef GPUWM_LIB_CUDA_CONTEXT_H
#define GPUWM_LIB_CUDA_CONTEXT_H

#include "memory.h"

int cuda_context_hold(const struct memory_device *device, struct error *error);
void cuda_context_unhold(const struct memory_device *device);
int cuda_context_enter(const struct memory_device *device, struct error *error);
void cuda_context_leave(const struct memory_device *device);
int cuda_context_idle(const struct memory_device *device, struct error *error);
void cuda_context_background(const struct memory_device *device);

#endif
