/* What a load is measured against, with nothing of gpuwm in it. Each runs in a child of its own (child_run),
 * so that its context and memory are gone when the load begins. */
#ifndef GPUWM_BENCH_CEILING_H
#define GPUWM_BENCH_CEILING_H

#include "files.h"

#include <stdbool.h>

#define CEILING_CHUNK ((uint64_t)8 << 20)
/* Threads that read: as many as there are processors, up to this; with O_DIRECT so many. */
#define CEILING_READERS_MAX 8
#define CEILING_GPUS_MAX 16

struct ceiling {
	double gb_s;
	double cpu_s;
	uint64_t peak_bytes; /* resident, of a process that has only a context, or nothing but this program */
};

/* Touched, in huge pages where the kernel gives them: requests to the disk are as large as memory is in one piece. */
void *memory_of(uint64_t bytes);
/* Of this process. */
double cpu_s(void);

/* A GPU's id, or "host". */
bool is_gpu(const char *device);

/* Pinned memory to the GPU, a ring of chunks, asynchronous copies on one stream. */
struct ceiling ceiling_pinned(const char *device, uint64_t bytes);
/* The same to several GPUs at the same moment, each from a process of its own: all together. `bytes`: to each. */
double ceiling_links(const char *const *devices, size_t count, uint64_t bytes);
/* A thread on each processor that preads the files into two buffers of its own. */
struct ceiling ceiling_pread(const struct files *files);
/* Threads that pread the files into memory of the device: on a GPU through a pinned ring and one stream, two
 * buffers a thread; on host into a mapped memfd. What a load could be without digests. */
struct ceiling ceiling_read(const char *device, const struct files *files);
/* Threads that read the files with O_DIRECT, into memory that is thrown away. */
struct ceiling ceiling_direct(const struct files *files);

#endif
