/* The inside of the kinds of memory: what the rows of memory_ops are made of, and calls of memory_digests while they run. */
#ifndef GPUWM_MEMORY_MEMORY_INTERNAL_H
#define GPUWM_MEMORY_MEMORY_INTERNAL_H

#include "memory.h"

/* ---- host (host_memfd.c) ----
 *
 * Memfds: descriptors that are said to be host memory, and the memory of regions. */

/* Seals that a memfd must have, and what an error says if it lacks one. */
struct host_seals {
	int seals;
	const char *remedy, *without; /* without: what can still be done */
};

/* Checks that the descriptor is a memfd with these seals, of exactly `bytes`. Fails with -EBADMSG, and with other -errno if the kernel
 * fails a look. */
int host_memfd_check(int fd, uint64_t bytes, const struct host_seals *seals, struct error *error);

/* Host memory that stays writable, of regions: the rows of memory_ops with these names. */
int host_share(const struct memory_device *device, struct memory_segment *segment, struct error *error);
int host_map_shared(const struct memory_device *device, int fd, uint64_t bytes, enum memory_access access,
		    struct memory_segment *ret, struct error *error);

/* ---- CUDA (cuda_context.c, cuda_map.c, cuda_words.c) ----
 *
 * What the CUDA row of memory_ops is made of: the rows with these names. */

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

extern const struct memory_ipc_ops ipc_cuda; /* cuda_ipc.c */

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

/* ---- digesting (memory_digest.c) ----
 *
 * One call of memory_digests while it runs. memory_digest.c has the CPU's part, memory_kernel.c the GPU's; both take
 * their next bytes here, tell the caller of progress, and pause as the caller asked. */

/* What was found of one span so far. Threads add to it atomically. */
struct tally {
	struct digest_sum sum;
	uint64_t bits; /* 0: only zeros so far */
};

/* One call of memory_digests. */
struct digesting {
	const struct memory_device *device;
	const struct memory_span *spans;
	size_t count;
	uint64_t bytes; /* of all spans */
	const struct memory_pace *pace; /* NULL: as fast as it goes */
	memory_progress_fn *progress; /* may be NULL */
	void *user_data;
	struct tally *tallies; /* one a span */
	struct memory_report report;
	struct error *error;
	/* The next bytes to be taken. */
	size_t span;
	uint64_t offset;
};

/* What digest_take took: consecutive bytes of one span. */
struct digest_part {
	size_t span;
	uint64_t offset, bytes; /* offset: a multiple of 16 */
};

/* Takes the next bytes, `most` (16 or more) at most; spans without any are passed over. False: none are left. */
bool digest_take(struct digesting *work, uint64_t most, struct digest_part *ret);

/* Tells that so many bytes are done. 0, or -ECANCELED with the error set. */
int digest_tell(struct digesting *work, uint64_t bytes);

/* Rests as the pace asks after `busy` seconds of work, looking for a stop meanwhile. 0 or -ECANCELED. */
int digest_rest(struct digesting *work, double busy);

/* ---- kernels (memory_kernel*.c) ----
 *
 * What kernels do on the GPU: the rows `digests`, `digests_prepare`, `compare` and `hasher_*` of memory_ops. */

int kernel_digests(struct digesting *work);
void kernel_load(const struct memory_device *device);

/* Addresses and bytes are multiples of 16. */
int kernel_compare(const struct memory_device *device, const struct memory_pair *pair,
		   memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error);

int kernel_hasher_open(const struct memory_device *device, size_t most, struct memory_hasher **ret,
		       struct error *error);
int kernel_hasher_run(struct memory_hasher *hasher, const struct memory_span *pieces, size_t count,
		      uint8_t (*ret_sums)[MEMORY_SHA256_BYTES], struct error *error);
void kernel_hasher_close(struct memory_hasher *hasher);

/* The kernels of the module, in the current context. */
struct cuda_driver;
struct kernels {
	void *digest, *compare, *sha256; /* CUfunction */
};
/* Loads the module once for each context. Fails with -ENOTSUP if the program was built without nvcc, or the driver takes none of the
 * images, and with -EIO. */
int kernels_load(const struct cuda_driver *cuda, int ordinal, struct kernels *ret, struct error *error);

/* ---- images of kernels (kernel_image.c) ----
 *
 * The kernels of memory/kernels, compiled into the library. */

/* Images for cuModuleLoadData, the best first: a fatbin with code for several GPUs, then PTX of an old version, which every driver
 * since 470 compiles for every GPU since Turing. NULL ends the list; all are NULL if the library was built without nvcc. */
#define KERNEL_IMAGES 2
extern const void *const kernel_images[KERNEL_IMAGES + 1];

#endif
