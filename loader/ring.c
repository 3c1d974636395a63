#include "ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#ifdef GPUWM_CUDA
#include "../client/lib/cuda.h"

#include <dlfcn.h>

static bool ring_lock(struct ring *ring)
{
	const struct cuda_driver *cuda;
	__typeof__(cuMemHostRegister) *lock;

	if (cuda_open(&cuda, NULL) < 0)
		return false;
	*(void **)&lock = dlsym(cuda->library, "cuMemHostRegister_v2");
	return lock && lock(ring->base, ring->chunk * ring->count, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
}

static void ring_unlock(struct ring *ring)
{
	const struct cuda_driver *cuda;
	__typeof__(cuMemHostUnregister) *unlock;

	if (cuda_open(&cuda, NULL) < 0)
		return;
	*(void **)&unlock = dlsym(cuda->library, "cuMemHostUnregister");
	if (unlock)
		unlock(ring->base);
}
#else
static bool ring_lock(struct ring *ring)
{
	(void)ring;
	return false;
}

static void ring_unlock(struct ring *ring)
{
	(void)ring;
}
#endif

int ring_make(size_t chunk, size_t count, bool lock, struct ring *ret, struct error *error)
{
	struct ring ring = {.chunk = chunk, .count = count};

	/* cppcheck-suppress invalidFunctionArg ; -1 is what anonymous memory takes */
	ring.base = mmap(NULL, chunk * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring.base == MAP_FAILED)
		return error_set(error, -ENOMEM, NULL, "no room for %zu buffers of %zu bytes", count, chunk);
	madvise(ring.base, chunk * count, MADV_HUGEPAGE);
	ring.locked = lock && ring_lock(&ring);
	*ret = ring;
	return 0;
}

void *ring_buffer(const struct ring *ring, size_t position)
{
	return (char *)ring->base + position * ring->chunk;
}

void ring_free(struct ring *ring)
{
	if (ring->locked)
		ring_unlock(ring);
	if (ring->base)
		munmap(ring->base, ring->chunk * ring->count);
	*ring = (struct ring){0};
}
