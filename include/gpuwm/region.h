/* gpuwm: memory that stays writable, and tensors that pass between processes.
 *
 * A region is memory on one device that several processes map. Its control memory, which gpuwmd makes,
 * says who still needs what. A *pool* hands out chunks of the region; a *queue* carries messages with
 * the tokens of chunks. Once a region is open, gpuwmd takes no part in this: it only notices when a
 * process has exited, and lets go what that process held.
 *
 *     owner                                             reader
 *     gpuwm_region_create(client, &options, &pool)      gpuwm_region_open(client, id, 0, 0, &pool)
 *     gpuwm_chunk_alloc(pool, bytes, wait, &chunk)
 *     ... write into gpuwm_chunk_address(chunk) ...
 *     gpuwm_chunk_offer(chunk, &readers, &token) ─────▶ gpuwm_chunk_take(pool, &token, wait, &chunk)
 *                                                       ... read ...
 *     the chunk is free again                    ◀───── gpuwm_chunk_finish(chunk)
 *
 * Rules, besides those of gpuwm/client.h:
 *
 * - Users. A process that has opened a region is a user of it, and has a slot (0 to 25). The library
 *   opens a region once in a process: opening it again fails with -EALREADY. In a forked child every
 *   call fails with -ECHILD; the child opens the region itself.
 * - Owner. Only the owner allocates. It is the process that created the region, and the region ends
 *   with it; or the region belongs to a user (GPUWM_OWNER_UID), and any one process of that user may
 *   own it.
 * - Generations. Each use of a chunk has a number of 64 bits, which never comes again. A token has it,
 *   so a token that is out of date is refused with -ESTALE.
 * - Order. A function that ends in _in_stream puts its effect into a CUDA stream, behind what was
 *   queued there before: the bytes count as written, or the chunk as read, when the GPU has got
 *   there. Such a function fails with -EBUSY if the stream is being captured: a graph would repeat
 *   the generation of its capture for ever. Call it before or after the launch of a graph instead. The
 *   functions without that ending mean now: whoever calls them has waited for the device.
 * - Death. When a process has exited, its chunks are free as far as it held them. Who waits for bytes
 *   that it was to write gets -EOWNERDEAD, and the message names the process. If the owner of a region
 *   exits, nobody takes from the region any more; those who hold a chunk read on, and the memory is
 *   given back when the last of them has finished and closed the region.
 * - Trust. All users of a region may write its control memory, so a hostile user can spoil the region
 *   for the others, but nothing else. Give a region to whom you trust (docs/protocol.md, "Regions").
 */
#ifndef GPUWM_REGION_H
#define GPUWM_REGION_H

#include "client.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct gpuwm_region; /* a region that this process has open */
struct gpuwm_chunk; /* a chunk that this process holds: to fill it, or to read it */

/* ---- regions ------------------------------------------------------------ */

enum gpuwm_region_kind {
	GPUWM_REGION_POOL, /* memory from which the owner allocates chunks */
	GPUWM_REGION_QUEUE, /* messages; on "host" only */
	GPUWM_REGION_BLOCKS, /* blocks of one size, found by a key: gpuwm/blocks.h */
	GPUWM_REGION_SCRATCH, /* memory that one process holds at a time: gpuwm/scratch.h */
};

/* Who may write the region's memory. */
enum gpuwm_writers {
	/* The process that created it. On host the kernel enforces that, by F_SEAL_FUTURE_WRITE. On a
	 * GPU the others map the memory read-only, which stops mistakes: whoever has the descriptor could
	 * map it otherwise. */
	GPUWM_WRITERS_ONE,
	/* Each user that opens it with GPUWM_REGION_WRITE. On host others get a descriptor for reading
	 * only, of a memfd with mode 0600 that belongs to gpuwm's user: only that user could open it again
	 * for writing. Where gpuwmd runs as the same user as its workers, so could they. */
	GPUWM_WRITERS_MANY,
};

enum gpuwm_owner {
	GPUWM_OWNER_PROCESS, /* the region ends with the process that created it */
	GPUWM_OWNER_UID, /* it stays until it is removed; it needs GPUWM_WRITERS_MANY */
};

struct gpuwm_region_options {
	size_t size; /* GPUWM_OPTIONS */
	const char *name; /* NULL: only the region's id names it */
	const char *device; /* "host" or the UUID of a GPU; NULL: "host" */
	enum gpuwm_region_kind kind;
	enum gpuwm_writers writers;
	enum gpuwm_owner owner;
	uint64_t bytes; /* of a pool and of scratch; it is rounded up to the device's granularity */
	uint32_t chunks; /* of a pool: how many may be in use at once, up to 4,096; 0: 1,024 */
	uint32_t items; /* of a queue: messages that wait, up to 65,536 */
	uint32_t item_bytes; /* of a queue: bytes of each, up to 1 MiB */
	/* Of a pool: a reader that has not taken its chunk after so long counts as finished with it, as soon
	 * as the owner needs the memory. 0: the owner waits for ever. */
	uint64_t ttl_ms;
	/* Of blocks: how many, up to 262,144, and the bytes of each, a multiple of 256. Blocks and scratch need GPUWM_WRITERS_MANY and
	 * GPUWM_OWNER_UID. */
	uint32_t blocks;
	uint64_t block_bytes;
	bool clear; /* of scratch: each new holder finds it cleared */
	/* How long to wait (0: not at all; -1: for ever) if a quota of the user has no room, and will have
	 * room when versions of the user are freed: gpuwmd frees nothing in the grace time after its
	 * start (10 s by default). An older gpuwmd refuses at once. */
	int64_t wait_ms;
};

enum gpuwm_region_flags {
	GPUWM_REGION_WRITE = 1, /* map the memory for writing; -EACCES if the region has one writer */
	/* Become the owner, of a region with GPUWM_OWNER_UID. It implies GPUWM_REGION_WRITE. -EBUSY: a process
	 * owns the region now. */
	GPUWM_REGION_OWN = 2,
	/* Of blocks: map the control memory only. For a process that looks keys up and holds blocks, but has no use for
	 * their bytes, nor for a CUDA context. It goes with no other flag. */
	GPUWM_REGION_LOOK = 4,
};

/* Makes a region, and opens it as its owner (of a queue: for writing).
 *
 * Fails with
 *   -EINVAL    An option is wrong.
 *   -EEXIST    The name is taken.
 *   -EACCES    This user may not make a region of this name.
 *   -ENOSPC    The device or its budget has no room.
 *   -EDQUOT    A quota of this user is used up. The message names the quota, and what of it comes
 *              back by itself; options.wait_ms waits for that.
 *   -ENOTSUP   The kernel has no SO_PEERPIDFD (Linux 6.5), so gpuwmd would not learn of deaths.
 *   -ENODEV, -ENOMEM, -EMFILE, -EIO, and the codes of calls in gpuwm/client.h
 * If gpuwmd goes away meanwhile, the library asks the next one, and gets the same region if there is one already. */
int gpuwm_region_create(struct gpuwm_client *client, const struct gpuwm_region_options *options,
			struct gpuwm_region **ret_region);
/* Opens a region by its name or its id. flags: of enum gpuwm_region_flags. wait_ms: as of gpuwm_region_options.
 *
 * Fails with
 *   -ENOENT    There is no such region, or this user may not see it.
 *   -EALREADY  This process has opened it.
 *   -EAGAIN    Its only writer has not sealed it yet: gpuwm_region_create has not returned there.
 *   -EBUSY     GPUWM_REGION_OWN: a process owns it.
 *   -EACCES    GPUWM_REGION_WRITE: it has one writer, or this user may only read.
 *   -EDQUOT    It has 26 users, or a quota of this user is used up; wait_ms waits for the latter.
 *   -EUCLEAN   GPUWM_REGION_OWN: chunks that a former owner has left overlap, or are not inside the region.
 *   -EOWNERDEAD, -ESHUTDOWN   It has ended. The message says why.
 *   and those of gpuwm_region_create */
int gpuwm_region_open(struct gpuwm_client *client, const char *region, unsigned flags, int64_t wait_ms,
		      struct gpuwm_region **ret_region);
/* Waits until the streams have passed what this process put into them for the region, then unmaps it and
 * gives the slot back. If this process owns a region of GPUWM_OWNER_PROCESS, the region ends.
 * region may be NULL. No other thread may use the region meanwhile.
 *
 * Returns 0 and frees the region. If gpuwmd can't be told, the slot is free when this process exits. Fails with
 *   -EBUSY   Chunks or exports of it are alive, this process owns or holds blocks of it, callers wait for chunks,
 *            functions of gpuwm_chunks_alloc_later have not returned for a second, or streams have not passed for ten
 *            seconds what this process put into them. The region stays open.
 *   -ECHILD */
int gpuwm_region_close(struct gpuwm_region *region);
/* Ends a region, whoever uses it: by its name or id, for its user and operators. */
int gpuwm_region_remove(struct gpuwm_client *client, const char *region);

struct gpuwm_region_info {
	const char *id; /* 32 digits */
	const char *name; /* "" if it has none */
	const char *device;
	enum gpuwm_region_kind kind;
	enum gpuwm_writers writers;
	enum gpuwm_owner owner;
	uint64_t bytes;
	uint32_t chunks; /* of a pool: how many there may be */
	uint32_t items, item_bytes; /* of a queue */
	uint32_t blocks; /* of blocks */
	uint64_t block_bytes;
	bool clear; /* of scratch */
	unsigned slot; /* this process's */
	bool writes, owns; /* whether this process may write, and allocate */
};
/* The texts are the region's. */
void gpuwm_region_info(const struct gpuwm_region *region, struct gpuwm_region_info *ret_info);
/* The first address of its memory in this process (a device pointer on a GPU). */
void *gpuwm_region_address(const struct gpuwm_region *region);
/* Lets another GPU of this process, named by its UUID, reach the region's memory, over NVLink or PCIe, at the same addresses. A second
 * call for the same GPU does nothing. Fails with -ENODEV (this process does not see it), -ENOTSUP (it can't reach the region's GPU, or the region is on host),
 * -EIO and -ECHILD. */
int gpuwm_region_reach(struct gpuwm_region *region, const char *device);
/* Returns 0 while the region takes new work, else -EOWNERDEAD, or -ESHUTDOWN if it was closed, removed or
 * damaged; gpuwm_error says which, and by whom. */
int gpuwm_region_check(const struct gpuwm_region *region);

struct gpuwm_pool_figures {
	uint64_t used, free, largest_free; /* bytes; free leaves out what is still read */
	uint32_t chunks; /* in use */
	/* Callers that wait for chunks. 0 in a process that does not own the region. */
	uint32_t waiting;
};
/* Counts what is in use now, from the control memory. Any user may call it. */
int gpuwm_pool_figures(const struct gpuwm_region *region, struct gpuwm_pool_figures *ret_figures);

/* ---- chunks: the owner -------------------------------------------------- */

/* What a reader needs to take a chunk. It is plain data: send it as it is. */
struct gpuwm_token {
	uint8_t region[16];
	uint64_t generation, offset, bytes;
	uint32_t chunk;
	uint32_t writer; /* the slot of the process that filled it */
};

/* Allocates a chunk of `bytes` (1 or more), at a multiple of 256 from the region's first address: the free
 * piece that fits best. While there is none, it waits for wait_ms (0: not at all; -1: for ever) until
 * readers finish. Waiting callers are served in the order in which they came.
 *
 * Returns 0 and sets *ret_chunk, which belongs to the caller until it is offered or discarded.
 *
 * Fails with
 *   -EAGAIN     There is no room now, or other callers came before. The message names them, and who holds
 *               the oldest chunk.
 *   -EINVAL     bytes is 0.
 *   -ENOSPC     The region is smaller than that, so waiting does not help.
 *   -EPERM      This process does not own the region.
 *   -EUCLEAN    The control memory has entries that no user writes.
 *   -ECHILD, -ENOMEM, and those of gpuwm_region_check */
int gpuwm_chunk_alloc(struct gpuwm_region *region, uint64_t bytes, int64_t wait_ms,
		      struct gpuwm_chunk **ret_chunk);
/* Allocates `count` chunks (1 or more) in one step: all of them, or none. It has one place in the line, so callers that need several
 * chunks never wait for each other. Sets ret_chunks[0] to ret_chunks[count - 1].
 *
 * Fails as gpuwm_chunk_alloc; with -ENOSPC also if the region can't have so many chunks, or their bytes, each rounded up to a multiple
 * of 256, are more than the region has. */
int gpuwm_chunks_alloc(struct gpuwm_region *region, const uint64_t *bytes, size_t count, int64_t wait_ms,
		       struct gpuwm_chunk **ret_chunks);

struct gpuwm_chunks_wish {
	const uint64_t *bytes; /* of each chunk */
	size_t count;
	int64_t wait_ms;
};
/* Called by a thread of the library, once. chunks: the array is the callee's during the call, the chunks are the callee's. NULL: there
 * are none, and gpuwm_error says why. */
typedef void gpuwm_chunks_fn(struct gpuwm_chunk **chunks, int code, void *user_data);
/* Does what gpuwm_chunks_alloc does, and returns at once. fn must not close the region; gpuwm_region_close fails with -EBUSY until fn
 * has returned.
 *
 * Returns 0 if fn will be called, and sets *ret_request, which may be NULL, to a number for gpuwm_chunks_alloc_cancel. fn may have been
 * called by then. Fails with -EINVAL, -ENOSPC, -EPERM, -ENOMEM, -EAGAIN (the thread could not be made), -ECHILD, and the codes of
 * gpuwm_region_check. */
int gpuwm_chunks_alloc_later(struct gpuwm_region *region, const struct gpuwm_chunks_wish *wish,
			     gpuwm_chunks_fn *fn, void *user_data, uint64_t *ret_request);
/* Takes a request of gpuwm_chunks_alloc_later out of the line, so that those behind it can go on. The thread calls its fn with
 * -ECANCELED, maybe after this function has returned.
 *
 * Fails with -ENOENT if fn was called already, or is being called; with -EPERM and -ECHILD. */
int gpuwm_chunks_alloc_cancel(struct gpuwm_region *region, uint64_t request);

/* Waits for wait_ms (0: not at all; -1: for ever) until no chunk of the region is in use: the readers have finished, also those that
 * come late, and this process has offered or discarded what it allocated. It has no place in the line, and takes nothing from readers
 * whose time to live is over. For the owner.
 *
 * Fails with -ETIMEDOUT, whose message names who holds the oldest chunk; with -EPERM, -EUCLEAN, -ECHILD, and the codes of
 * gpuwm_region_check. */
int gpuwm_pool_drain(struct gpuwm_region *region, int64_t wait_ms);

/* Where the chunk is in this process. A reader must not write there. */
void *gpuwm_chunk_address(const struct gpuwm_chunk *chunk);
uint64_t gpuwm_chunk_bytes(const struct gpuwm_chunk *chunk);
struct gpuwm_region *gpuwm_chunk_region(const struct gpuwm_chunk *chunk);

/* Who is to read a chunk. The chunk is free again when all of them have finished. */
struct gpuwm_readers {
	uint32_t named; /* users, a bit for each slot */
	uint32_t others; /* and so many users, whoever they are, up to 15 */
};

/* Hands the chunk to its readers: its bytes are there. Sets *ret_token, and consumes the chunk. readers with
 * neither named nor other users is -EINVAL; a named slot without a user is -ESRCH. */
int gpuwm_chunk_offer(struct gpuwm_chunk *chunk, const struct gpuwm_readers *readers,
		      struct gpuwm_token *ret_token);
/* Does the same, but its bytes are there when the GPU gets to this place in the stream. Readers may take the chunk at
 * once, and wait for it in their own streams. stream: a CUstream. -ENOTSUP: the region is on host. */
int gpuwm_chunk_offer_in_stream(struct gpuwm_chunk *chunk, const struct gpuwm_readers *readers, void *stream,
				struct gpuwm_token *ret_token);
/* Gives back a chunk that was not offered. Consumes it. The device must not write into it any more. */
int gpuwm_chunk_discard(struct gpuwm_chunk *chunk);

/* Waits until all readers of an offered chunk have finished. Any user may call it. Returns 0, also if the token is out of date: they
 * have finished then. Fails with -ETIMEDOUT and those of gpuwm_region_check. */
int gpuwm_token_finished(struct gpuwm_region *region, const struct gpuwm_token *token, int64_t wait_ms);
/* Has the stream wait for the readers that are named, or that have taken the chunk by now. A reader that exits does not hold the
 * stream up. */
int gpuwm_token_finished_in_stream(struct gpuwm_region *region, const struct gpuwm_token *token, void *stream);
/* Nobody may take the chunk any more: the readers that have not come count as finished. For the owner. */
int gpuwm_token_withdraw(struct gpuwm_region *region, const struct gpuwm_token *token);

/* ---- chunks: readers ----------------------------------------------------- */

/* Takes a chunk to read it, and waits until its bytes are there.
 *
 * Returns 0 and sets *ret_chunk, which belongs to the caller until gpuwm_chunk_finish.
 *
 * Fails with
 *   -EINVAL     The token is of another region, or says what can't be.
 *   -ESTALE     It is out of date, or was withdrawn, or all its readers have come.
 *   -EALREADY   This process holds the chunk, or has finished with it: a reader counts once.
 *   -ETIMEDOUT  The bytes are not there yet. Nothing was taken.
 *   -EOWNERDEAD The process that was to write the bytes has exited before.
 *   -ECHILD, -ENOMEM, and those of gpuwm_region_check */
int gpuwm_chunk_take(struct gpuwm_region *region, const struct gpuwm_token *token, int64_t wait_ms,
		     struct gpuwm_chunk **ret_chunk);
/* Takes it at once, and has the stream wait for the bytes. If the writer exits before they are there, the stream goes on, and
 * gpuwm_chunk_check says so. */
int gpuwm_chunk_take_in_stream(struct gpuwm_region *region, const struct gpuwm_token *token, void *stream,
			       struct gpuwm_chunk **ret_chunk);
/* Call it after the stream has passed: 0, -EOWNERDEAD if the bytes never came, -EAGAIN if they are not there yet. */
int gpuwm_chunk_check(const struct gpuwm_chunk *chunk);
/* The reader has finished. Consumes the chunk. */
int gpuwm_chunk_finish(struct gpuwm_chunk *chunk);
/* The reader has finished when the GPU gets to this place in the stream. Consumes the chunk. */
int gpuwm_chunk_finish_in_stream(struct gpuwm_chunk *chunk, void *stream);

/* ---- tensors ------------------------------------------------------------- */

/* A tensor in a chunk. */
struct gpuwm_chunk_view {
	uint64_t offset; /* bytes from the chunk's first */
	unsigned dtype; /* gpuwm_dtype_name */
	uint32_t ndim;
	const uint64_t *shape;
	const int64_t *strides; /* in elements; NULL: dense, the last dimension fastest */
};
/* Makes a DLPack export of a tensor in the chunk, as gpuwm_dlpack does. The chunk is held until the last of the caller's handle and its
 * exports is gone: gpuwm_chunk_finish gives up the handle only. After the deleter of the last one, a thread of the library finishes, in
 * the way that the handle did: a stream that was given to gpuwm_chunk_finish_in_stream must live until then. An export of a chunk that
 * is being filled is writable; it keeps the region open, not the chunk.
 *
 * Returns 0, or 1 if the export shows bytes as uint8. Fails with -EINVAL if the tensor is not inside the chunk, and with the codes of
 * gpuwm_dlpack. */
int gpuwm_chunk_dlpack(struct gpuwm_chunk *chunk, const struct gpuwm_chunk_view *view,
		       struct DLManagedTensor **ret);
/* The same with the struct of DLPack 1.0. */
int gpuwm_chunk_dlpack_versioned(struct gpuwm_chunk *chunk, const struct gpuwm_chunk_view *view,
				 struct DLManagedTensorVersioned **ret);

/* ---- queues -------------------------------------------------------------- */

/* Puts a message into a queue: `bytes` of data, and tokens of chunks that the getter takes. The order of each sender's messages is
 * kept; each message goes to one getter. While the queue is full, it waits. If another process has the queue's lock, as when it was
 * stopped in the middle of a put, the call waits for up to a second more.
 *
 * Fails with
 *   -EAGAIN    It is full, and wait_ms has passed.
 *   -EBUSY     Another process has the lock, and wait_ms and the second have passed. The message names
 *              the process. gpuwm_queue_get fails with it too.
 *   -EMSGSIZE  Data and tokens are more than item_bytes, or there are more than 1,024 tokens.
 *   -EACCES    This process has opened the queue without GPUWM_REGION_WRITE.
 *   -EUCLEAN   The control memory or a message says what no user writes. gpuwm_queue_get and
 *              gpuwm_queue_length fail with it too.
 *   -EPIPE     The queue was closed.
 *   -ECHILD, -EINVAL, and those of gpuwm_region_check */
int gpuwm_queue_put(struct gpuwm_region *queue, const void *data, uint32_t bytes,
		    const struct gpuwm_token *tokens, uint32_t token_count, int64_t wait_ms);

struct gpuwm_message {
	void *data;
	uint32_t bytes;
	uint32_t chunk_count;
	/* Of its tokens, taken; the caller finishes them. NULL for one that was out of date. */
	struct gpuwm_chunk **chunks;
	struct gpuwm_token *tokens;
};
/* Gets the oldest message, and takes its chunks, in one step: if this process dies in between, another getter gets the message, or
 * the chunks are free. It does not wait for the chunks' bytes: call gpuwm_chunk_wait or gpuwm_chunk_wait_in_stream before they are read.
 *
 * gone: the ids of `gone_count` pools that the caller could not open any more. Their chunks are NULL in the message, which would
 * else stay in the queue for ever. gone may be NULL if gone_count is 0.
 *
 * Returns 0 and sets *ret_message, which the caller frees with gpuwm_message_free. The caller takes over a chunk by setting its place
 * in `chunks` to NULL.
 *
 * Fails with
 *   -EAGAIN   It is empty, and wait_ms has passed.
 *   -EPIPE    It is empty, and was closed.
 *   -ENXIO    The message needs a pool that this process has not opened: ret_pool, which may be NULL, has its id. The message stays
 *             in the queue. Open the pool, and call again.
 *   -EINVAL   An entry of `gone` is no id.
 *   -ECHILD, -ENOMEM, and those of gpuwm_region_check */
int gpuwm_queue_get(struct gpuwm_region *queue, int64_t wait_ms, const char *const *gone, size_t gone_count,
		    struct gpuwm_message **ret_message, char ret_pool[33]);
/* Frees the message; chunks that are left in it are finished. message may be NULL. */
void gpuwm_message_free(struct gpuwm_message *message);
/* Waits until the bytes of a chunk from a message are there, as gpuwm_chunk_take does, and as gpuwm_chunk_take_in_stream does. */
int gpuwm_chunk_wait(struct gpuwm_chunk *chunk, int64_t wait_ms);
int gpuwm_chunk_wait_in_stream(struct gpuwm_chunk *chunk, void *stream);
/* How many messages wait. */
int gpuwm_queue_length(struct gpuwm_region *queue, uint64_t *ret_messages);
/* Nothing is put any more; what is there can be got. Everybody who waits is woken. */
int gpuwm_queue_shut(struct gpuwm_region *queue);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
