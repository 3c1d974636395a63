/* Plain memory of the current context's GPU, which UCX can pass on. */
#ifndef GPUWM_PEER_STAGE_GPU_H
#define GPUWM_PEER_STAGE_GPU_H

#include "../base/errors.h"

#include <stddef.h>

struct stage_gpu;

/* One allocation: a receiver opens each that it meets, which takes milliseconds. Returns 0 and sets *ret. Fails with -ENOMEM and -EIO; with
 * -ENOTSUP in a build without CUDA. */
int stage_gpu_new(size_t bytes, struct stage_gpu **ret, struct error *error);
/* NULL is fine. Returns NULL. */
struct stage_gpu *stage_gpu_free(struct stage_gpu *gpu);
void *stage_gpu_at(const struct stage_gpu *gpu, size_t offset);
/* Copies within the GPU, and waits until the bytes are there, for nothing else. Fails with -EIO. */
int stage_gpu_copy(const struct stage_gpu *gpu, void *to, const void *from, size_t bytes, struct error *error);

#endif
