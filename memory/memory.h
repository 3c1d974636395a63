/* Memory of one kind behind one interface: memfds on `host`, CUDA VMM handles on a GPU. A kind is a
 * `struct memory_ops` in a file of its own, and a row of `memories` in memories.c. What code that is not
 * of one kind wants to know of a kind is a member of it. Functions take and give 0 or -errno with
 * *error filled. */
#ifndef GPUWM_LIB_MEMORY_H
#define GPUWM_LIB_MEMORY_H

#include "../proto/index/digest.h"
#include "../base/errors.h"
#include "../proto/memory_kind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_CHUNK_BYTES MIB(16) /* of a digest on the CPU: malloc keeps such a buffer between calls */

#define MEMORY_PEERS_MAX 15 /* of a host with 16 GPUs, the largest that NVLink joins */

/* Where memory lies. */
struct memory_device {
	const struct memory_ops *ops;
	char id[DEVICE_BYTES_MAX + 1]; /* "host" or a UUID */
	int ordinal; /* cuda: this process's number of it */
	int peers[MEMORY_PEERS_MAX]; /* cuda: GPUs that may read what map_all maps, besides */
	unsigned peer_count;
	bool private_writes; /* host: what map_all maps may be written, which nobody else sees */
};

enum memory_access { MEMORY_READ, MEMORY_WRITE };

/* One segment: a physical allocation, mapped whole or not at all. */
struct memory_segment {
	int fd; /* -1: not exported yet (cuda) or taken */
	uint64_t bytes;
	uint64_t handle; /* cuda: CUmemGenericAllocationHandle; 0 without */
	void *address; /* NULL: not mapped. cuda: a device pointer */
};

/* Addresses of this process, for the segments of one part. */
struct memory_range {
	void *base; /* NULL: none */
	uint64_t bytes;
};

struct digesting;

/* Returns nonzero to stop what tells it. `bytes` may be 0: only a look whether to stop. */
typedef int memory_progress_fn(uint64_t bytes, void *user_data);

/* Two pieces of as many bytes. */
struct memory_pair {
	const void *a, *b;
	uint64_t bytes;
};

/* Some bytes of mapped memory. */
struct memory_span {
	const void *address;
	uint64_t bytes;
};

struct memory_hasher;
struct memory_ipc_ops;
#define MEMORY_SHA256_BYTES 32

struct memory_ops {
	const struct memory_kind *kind;
	uint64_t spacing; /* in a range each segment begins at a multiple of it from the base */
	int dlpack_device; /* the kind's DLDeviceType */
	/* Addresses are the CPU's: it reads and writes mapped memory itself, and a write into what is mapped
	 * for reading only is a SIGSEGV. */
	bool cpu_addresses;
	bool fresh_zeros; /* new memory reads as zeros */
	bool seals; /* nobody can change memory that was exported */
	bool private_writes; /* what map_all maps can be written privately, as memory_device.private_writes asks */
	bool fork_omits_writable; /* a forked child lacks what map_at mapped for writing, until `reaccess` */
	/* Finds the device `device->id` and sets the members of `device` that the kind has, as its ordinal. NULL: there is
	 * nothing to find. -ENOTSUP: no driver here; -ENODEV: this process can't see it. */
	int (*open)(struct memory_device *device, struct error *error);
	/* Checks that the peer, a device of the same kind, can read the device's memory. NULL: devices of this kind have no
	 * peers. -ENOTSUP: it can't. */
	int (*reaches)(const struct memory_device *peer, const struct memory_device *device,
		       struct error *error);
	/* Sets ret_id to the device of this thread's current context, without loading a driver. NULL: there are no contexts.
	 * -ENOENT: there is none. */
	int (*current)(char ret_id[DEVICE_BYTES_MAX + 1]);
	/* What segment sizes must be multiples of. */
	int (*granularity)(const struct memory_device *device, uint64_t *ret_bytes, struct error *error);
	/* New memory of exactly `bytes`, a multiple of the granularity. Reads as
	 * zeros after `zero`, or at once with fresh_zeros. -ENOSPC says what is free. */
	int (*create)(const struct memory_device *device, uint64_t bytes, struct memory_segment *ret,
		      struct error *error);
	/* Fills a segment that is mapped for writing with zeros. */
	int (*zero)(const struct memory_device *device, struct memory_segment *segment, struct error *error);
	/* Makes segment->fd the descriptor to be passed on. The segment must be
	 * unmapped. Host: sets the seals (can take long); cuda: exports the handle. */
	int (*export)(const struct memory_device *device, struct memory_segment *segment, struct error *error);
	/* A segment from a descriptor that stays the caller's own (ret->fd is -1; host keeps
	 * a duplicate until `map` or the release).
	 * With `check` the descriptor is not trusted: memfd, seals and size are
	 * verified (-EBADMSG); on cuda the device is, and mapping verifies the size.
	 * -EBADMSG means that the descriptor is wrong; after -ENOMEM, -EMFILE and -EIO it may be good. */
	int (*import)(const struct memory_device *device, int fd, uint64_t bytes, bool check,
		      struct memory_segment *ret, struct error *error);
	/* Maps the whole segment, at addresses of its own. Needs no CUDA context. */
	int (*map)(const struct memory_device *device, struct memory_segment *segment,
		   enum memory_access access, struct error *error);
	/* Unmaps what `map` mapped; unmapped is fine. On cuda the caller has made the device idle. */
	void (*unmap)(const struct memory_device *device, struct memory_segment *segment);
	/* Unmaps, closes and forgets; a zeroed segment with fd -1 is fine. */
	void (*release)(const struct memory_device *device, struct memory_segment *segment);
	/* Addresses for `bytes`, where `wish` says if that can be had (NULL: anywhere);
	 * nothing is mapped there yet. No context. -ENOMEM. */
	int (*reserve)(const struct memory_device *device, uint64_t bytes, void *wish, struct memory_range *ret,
		       struct error *error);
	/* Maps a segment in a range that has nothing mapped there. `unreserve` unmaps it. No context. */
	int (*map_at)(const struct memory_device *device, void *address, struct memory_segment *segment,
		      enum memory_access access, struct error *error);
	/* Maps imported segments in their order into a range of memory_range_bytes that has
	 * nothing mapped, for reading (and for private_writes): one call of the driver each, and one for all. When
	 * it fails nothing is mapped. They keep what they were imported with: remap_all needs it, and map_all after
	 * vacate. */
	int (*map_all)(const struct memory_device *device, const struct memory_range *range,
		       struct memory_segment *segments, uint32_t count, struct error *error);
	/* Maps other segments of the same sizes where map_all put `now`. When it fails, `now`
	 * is there again; where not even that could be, nothing is, and no segment has an
	 * address. On cuda the caller has made the device idle; on host who reads meanwhile
	 * sees the one or the other in each segment. */
	int (*remap_all)(const struct memory_device *device, const struct memory_range *range,
			 struct memory_segment *now, struct memory_segment *next, uint32_t count,
			 struct error *error);
	/* Ends what map_all did, so that other segments can be mapped there: no segment has an address then, and the
	 * range stays reserved. When it fails all is as it was. On cuda the caller has made the device idle; on host
	 * the memory stays readable until other segments are mapped over it. */
	int (*vacate)(const struct memory_device *device, const struct memory_range *range,
		      struct memory_segment *segments, uint32_t count, struct error *error);
	/* Takes the memory out of a range that was vacated, so that it does not count as used: a read there is a fault. NULL: vacate has
	 * done so. -ENOMEM: the memory is still there. */
	int (*blank)(const struct memory_range *range, struct error *error);
	/* Maps segments of one's own anew where map_at put them: for reading, so that they can be exported, or
	 * for writing again (what is sealed on host: privately, copied where it is written). A forked child has
	 * them too then. When it fails each is mapped the one way or the other, or none is and no segment has an
	 * address. On cuda all are there, and the caller has made the device idle; on host who reads meanwhile
	 * sees the same bytes. */
	int (*reaccess)(const struct memory_device *device, const struct memory_range *range,
			struct memory_segment *segments, uint32_t count, enum memory_access access,
			struct error *error);
	/* Makes an exported segment of one's own what an imported one is; its descriptor is used up. */
	void (*settle)(struct memory_segment *segment);
	/* Makes every page of what map_all mapped present, so that no read faults. */
	int (*populate)(const struct memory_device *device, const struct memory_segment *segments,
			uint32_t count, struct error *error);
	/* Closes the descriptors that imported segments keep: they can't be mapped any more.
	 * Async-signal-safe, for a forked child. */
	void (*close_fds)(struct memory_segment *segments, uint32_t count);
	/* Unmaps what map_all or map_at mapped, if anything, and gives the addresses up; a zeroed
	 * range is fine. On cuda the caller has made the device idle. */
	void (*unreserve)(const struct memory_device *device, struct memory_range *range,
			  struct memory_segment *segments, uint32_t count);
	/* Copies between mapped memory and the host. Synchronous. cuda: inside
	 * memory_enter. */
	int (*write)(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		     struct error *error);
	int (*read)(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		    struct error *error);
	/* Waits until nothing that this process queued uses the device, or a peer of it. Makes no
	 * context where there is none. -EBUSY: a stream is being captured, nothing was
	 * waited for (but a capture that was not told is lost by the question, where its stream is one that stands
	 * apart from the default one); -EIO: the context is broken, nothing runs in it any more. */
	int (*idle)(const struct memory_device *device, struct error *error);
	/* Said by a thread of the library, whose calls concern no stream capture of the program. */
	void (*background)(const struct memory_device *device);
	/* Makes the device's primary context current for this thread, and puts back
	 * what was. Pairs; `enter` may take 100 ms the first time. */
	int (*enter)(const struct memory_device *device, struct error *error);
	void (*leave)(const struct memory_device *device);
	/* Keeps the primary context in being, so that only the first `enter` in
	 * between is slow. Pairs; any thread. */
	int (*hold)(const struct memory_device *device, struct error *error);
	void (*unhold)(const struct memory_device *device);
	/* Registers this process's memory, so that copies from it to every device of the kind are fast. `unpin` undoes it. Both are
	 * called inside memory_enter. NULL: copies are as fast without. Fails with -ENOMEM if the driver refuses; it may take
	 * less. */
	int (*pin)(void *base, uint64_t bytes, struct error *error);
	void (*unpin)(void *base);
	/* Computes the digests of one call of memory_digests, as by a kernel. Returns 0. Returns 1 if it can't and has done
	 * nothing: the report's note says why, and the caller reads the memory back. Fails with -errno. NULL with
	 * cpu_addresses, where the CPU computes them in place. */
	int (*digests)(struct digesting *work);
	/* Loads into the device's context what `digests` needs, so that `digests` need not load it. If that fails, `digests`
	 * tries again and says why. Inside memory_enter; any thread. */
	void (*digests_prepare)(const struct memory_device *device);
	/* Makes memory that stays writable what can be passed on: nobody can change its size. Host: its mode is 0600, and it may
	 * still get F_SEAL_FUTURE_WRITE; cuda: as `export`. The segment is not mapped. */
	int (*share)(const struct memory_device *device, struct memory_segment *segment, struct error *error);
	/* Maps the descriptor of such memory of exactly `bytes`, until `unmap_shared`. What one process writes the others read. The
	 * descriptor stays the caller's. A forked child has nothing there. No context. -EBADMSG: the descriptor is of no such
	 * memory, or of another size; -EACCES, -EPERM: host, for writing, where that is not allowed. */
	int (*map_shared)(const struct memory_device *device, int fd, uint64_t bytes, enum memory_access access,
			  struct memory_segment *ret, struct error *error);
	/* Lets a peer of the device read what `map_shared` has mapped, and write it if `access` says so. NULL: the kind has no
	 * peers. -EIO. */
	int (*share_with)(const struct memory_device *device, const struct memory_device *peer,
			  const struct memory_segment *segment, enum memory_access access, struct error *error);
	/* On cuda the caller has made the device idle, as far as it uses this memory. */
	void (*unmap_shared)(const struct memory_device *device, struct memory_segment *segment);
	/* Makes this process's memory, shared or not, words that streams write and wait for, in all contexts. `unregister_words`
	 * undoes it, when the streams have passed. Both are called inside memory_enter. NULL: the kind has no streams. -ENOTSUP: the
	 * device or its driver can't; -ENOMEM: the driver refuses; -EIO. */
	int (*register_words)(const struct memory_device *device, void *base, uint64_t bytes,
			      struct error *error);
	void (*unregister_words)(const struct memory_device *device, void *base);
	/* Put into a CUstream of the device: a store of `value`, which all that was queued before precedes; and a wait until the
	 * word is `value` or more (as a number that wraps). `word` lies in registered memory, or in the device's own that is mapped,
	 * for writing if it is written. The stream belongs to this thread's current context if that is one of the device, else to
	 * the primary one. Any context that is current is left as it was. -EBUSY: the stream is being captured, and the capture
	 * goes on; -EIO. */
	int (*write_word)(const struct memory_device *device, void *stream, void *word, uint64_t value,
			  struct error *error);
	int (*wait_word)(const struct memory_device *device, void *stream, void *word, uint64_t value,
			 struct error *error);
	/* Has the stream call `fn`, by a thread of the driver, when it has got there. What is queued behind waits until `fn` has
	 * returned. `fn` must not call the driver. If the context breaks before, nobody calls `fn`. The stream may be one of any
	 * GPU: it belongs to this thread's current context if there is one, else to the device's primary one. NULL: the kind has no
	 * streams. The rest is as of write_word. */
	int (*call_in_stream)(const struct memory_device *device, void *stream, void (*fn)(void *user_data),
			      void *user_data, struct error *error);
	/* Returns whether the context that write_word would use is broken, so that nothing happens any more that was queued in it.
	 * Waits for nothing. NULL: the kind has no contexts. */
	bool (*is_broken)(const struct memory_device *device);
	/* Compares two pieces, as by a kernel; see memory_compare. Returns 1 if it can't and has done nothing: then the CPU
	 * reads both. Is not called if cpu_addresses. */
	int (*compare)(const struct memory_device *device, const struct memory_pair *pair,
		       memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error);
	/* SHA-256 of many pieces of mapped memory at a time, as by a kernel that has a thread for each: many small ones are fast.
	 * Inside memory_enter, and one thread a hasher. hasher_open returns 0 and sets *ret, with room for `most` pieces. It returns 1
	 * if it can't. Fails with -ENOMEM and -EIO. hasher_run hashes up to so many; their addresses are multiples of 16. Fails with
	 * -EIO if the memory can't be read, and with -EINVAL if there are more. NULL with cpu_addresses. */
	int (*hasher_open)(const struct memory_device *device, size_t most, struct memory_hasher **ret,
			   struct error *error);
	int (*hasher_run)(struct memory_hasher *hasher, const struct memory_span *pieces, size_t count,
			  uint8_t (*ret_sums)[MEMORY_SHA256_BYTES], struct error *error);
	void (*hasher_close)(struct memory_hasher *hasher);
	const struct memory_ipc_ops *ipc; /* memory_ipc.h; NULL: the kind has only segments */
};

extern const struct memory_ops memory_host;
extern const struct memory_ops memory_cuda; /* In a build without cuda.h its `open` says so. */

/* Of each kind of memory_kinds one. NULL ends the array. */
extern const struct memory_ops *const memories[];

/* Returns the ops of a device by its name, which device_wrong takes. */
const struct memory_ops *memory_ops_of(const char *id);

/* The device named `id`. -ENOTSUP: no CUDA driver here; -ENODEV: this process
 * can't see it (CUDA_VISIBLE_DEVICES). */
int memory_device_open(const char *id, struct memory_device *ret, struct error *error);

/* Names the GPUs that are to read the device's memory besides. -ENOTSUP: one does not reach it; -EINVAL,
 * and as memory_device_open. */
int memory_device_peers(struct memory_device *device, const char *const *ids, size_t count,
			struct error *error);

/* What a range for these segments takes; 0: more than there are addresses. */
uint64_t memory_range_bytes(const struct memory_device *device, const struct memory_segment *segments,
			    uint32_t count);
/* Where in the range the segment at `position` lies. */
void *memory_range_at(const struct memory_device *device, const struct memory_range *range,
		      const struct memory_segment *segments, uint32_t position);

/* The device of this thread's current context, of any kind. -ENOENT: none; does not load a driver. */
int memory_current_device(char ret_id[DEVICE_BYTES_MAX + 1]);

struct memory_sum {
	struct digest digest;
	bool zero; /* every byte is 0; of no bytes too */
};

/* For work beside somebody else's: at most `chunk` bytes (MEMORY_PACE_CHUNK_MIN or more) at a time, and pauses, so that it is busy
 * permille/1000 (1 to 1000) of the time. On the CPU with one thread. */
#define MEMORY_PACE_CHUNK_MIN 4096 /* less would be all pauses */
struct memory_pace {
	uint64_t chunk;
	unsigned permille;
};

/* How a call of memory_digests went. */
struct memory_report {
	bool kernel; /* a GPU's kernel did it */
	double seconds; /* of the kernel, as the GPU's events say; else of the CPU's work. Without pauses */
	char note[TEXT_BYTES_MAX + 1]; /* "", or why no kernel ran on a GPU: a sentence for the operator */
};

/* What a call of memory_digests is asked for besides the digests; zeroed: nothing. */
struct memory_digest_options {
	const struct memory_pace *pace; /* NULL: no pauses */
	/* May be NULL. The calling thread calls it, with every byte once, at least every 4 GiB or 1 s. If it returns nonzero,
	 * the work stops: -ECANCELED. */
	memory_progress_fn *progress;
	void *user_data;
	struct memory_report *ret_report; /* may be NULL; set on success */
};

/* Digests of many pieces of mapped memory in one go, any alignment, any lengths: on a GPU by a kernel, in batches of some
 * GiB, at the memory's speed; where the CPU reads the memory itself, by as many threads as it takes. What was written there must have
 * arrived: nothing is waited for. Where the kernel can't be had (a build without nvcc, a driver that takes
 * none of its images, no device memory for its lists) the memory is read back and digested on the CPU, and the report's
 * note says so: slower, but no error. Inside memory_enter.
 *
 * options may be NULL. -ENOMEM; -ECANCELED; -EIO: the memory can't be read. */
int memory_digests(const struct memory_device *device, const struct memory_span *spans, size_t count,
		   const struct memory_digest_options *options, struct memory_sum *ret_sums,
		   struct error *error);

/* Compares two pieces of mapped memory byte by byte: on a GPU by a kernel, at the memory's speed. Where the kernel can't be had, reads
 * both back, which is slower. Addresses and bytes of a GPU's memory are multiples of 16. Stops soon after a difference. Calls progress, which may be NULL, with the bytes that were compared since its last call; if it returns nonzero, stops and returns
 * that, which is not 1. Inside memory_enter. Returns 0 and sets *ret_equal. Fails with -ENOMEM, and with -EIO if the memory can't be
 * read. */
int memory_compare(const struct memory_device *device, const struct memory_pair *pair,
		   memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error);

#endif
