/* What the files of the stand-in driver share. */
#ifndef FAKECUDA_DRIVER_H
#define FAKECUDA_DRIVER_H

#include "call.h"
#include "machine.h"

#include <stddef.h>

#define NAP_NS 100000 /* between two looks whether a wait is over */

/* The prototypes are the header's own, and what is defined of them is exported. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

enum needs {
	NEEDS_NOTHING,
	NEEDS_INIT,
	NEEDS_CONTEXT, /* a current one, alive and not broken */
};

/* Every entry point: fault injection, what it needs, one lock around the body,
 * the log.  DRIVER_CALL(name, needs, (parameters), (arguments)) { body } */
#define DRIVER_CALL(name, needs, parameters, arguments)                                                        \
	static CUresult body_##name parameters;                                                                \
	CUresult name parameters                                                                               \
	{                                                                                                      \
		CUresult result_ = driver_enter(#name, needs);                                                 \
		if (result_ == CUDA_SUCCESS)                                                                   \
			result_ = driver_leave(body_##name arguments);                                         \
		return (CUresult)call_log(#name, result_);                                                     \
	}                                                                                                      \
	static CUresult body_##name parameters

/* CUDA_SUCCESS: the lock is held until driver_leave, which returns its argument. */
CUresult driver_enter(const char *name, enum needs needs);
CUresult driver_leave(CUresult result);
/* For who is in no call: the same lock. */
void driver_lock(void);
void driver_unlock(void);
/* Gives the lock up for a moment: for a call that waits for what another thread or process does. */
void driver_nap(void);

/* ---- devices: an ordinal counts what CUDA_VISIBLE_DEVICES shows -------- */

int device_count(void);
/* -1: no such ordinal. */
int device_physical(int ordinal);
/* -1: hidden from this process. */
int device_ordinal(int physical);

/* CUDA_SUCCESS, or what calls that need the device end with since it is lost. */
CUresult device_loss(int ordinal);

/* ---- contexts ---------------------------------------------------------- */

/* CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED, or what broke it.
 * ret_ordinal may be NULL. */
CUresult context_check(int *ret_ordinal);
/* From now on every call that needs a context gives `result`. */
void context_break(CUresult result);
bool context_is_broken(void);
/* The current one's: no two contexts of a process have the same. */
unsigned long long context_id(void);

/* ---- streams: of a context, whose calls name the current one's ---------- */

struct stream_work {
	CUdeviceptr to, from;
	void *host;
	uint64_t bytes;
	unsigned value;
	uint64_t word;
	int ordinal; /* of the context that it was queued in */
};
/* CUDA_ERROR_NOT_READY: it can't be done yet, and neither what is behind it. */
typedef CUresult stream_work_fn(const struct stream_work *work);

/* Queues it; on a default stream it is done at once, behind what comes before it. CUDA_ERROR_INVALID_HANDLE:
 * no stream of this context. What fails later is CUDA_ERROR_ILLEGAL_ADDRESS for who waits, and sticky. */
CUresult stream_later(CUstream stream, stream_work_fn *work, const struct stream_work *data);
/* The same; others may wait for the work, so that it happens without anybody's call (streams_go_on). */
CUresult stream_later_alone(CUstream stream, stream_work_fn *work, const struct stream_work *data);
/* Does what can be done now of the work that happens without a call, and of what is before it. Returns whether some is left. */
bool streams_go_on(void);
/* Does what the stream has still to do; for work that then happens within its call. */
CUresult stream_now(CUstream stream);
/* The same for all streams of the current context. */
CUresult streams_run(void);
/* Its streams and events are gone, with what they had still to do. */
void streams_end(unsigned long long context);
/* False: a default one, or none of the current context. */
bool stream_can_be_captured(CUstream stream, bool *ret_blocking);

/* ---- events of other processes (ipc.c) ---------------------------------- */

struct event_word {
	int fd; /* of the maker; -1: none */
	bool *happened; /* shared; NULL: the event is of one process */
	bool opened; /* another process made it */
};
CUresult event_word_new(struct event_word *ret);
void event_word_end(struct event_word *word);
/* stream.c: an event with this word; and the word of an event, or NULL. */
CUresult event_new(const struct event_word *word, CUevent *ret);
const struct event_word *event_word(CUevent event);

/* Wakes the thread that does what happens without a call (words.c). */
void words_go_on(void);

/* ---- captures (graph.c) ------------------------------------------------- */

bool stream_is_captured(CUstream stream);
/* What queuing on a captured stream gives; nothing is kept of it. */
CUresult capture_take(CUstream stream);
/* A captured stream was asked for what it can't: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult capture_spoil(CUstream stream);
/* The whole context was waited for, or (blocking) its default stream used: what that gives. */
CUresult captures_spoil(unsigned long long context, bool blocking);
/* A function that no graph would have is called: what that gives, by this thread's mode. */
CUresult captures_check(const char *name);
void captures_end(unsigned long long context);

/* The same of its modules. */
void modules_end(unsigned long long context);

/* ---- memory ------------------------------------------------------------ */

/* One physical allocation, as this process holds it: by its handle, by
 * mappings, or both. */
struct allocation {
	struct allocation *next;
	CUmemGenericAllocationHandle handle; /* 0: released, only mapped */
	int fd;
	int ordinal;
	uint64_t bytes;
	bool exportable; /* made here, with the handle type for descriptors */
	unsigned holds; /* its handle and its mappings */
};

/* New memory of a device. CUDA_ERROR_OUT_OF_MEMORY. Held once. */
CUresult allocation_create(int ordinal, uint64_t bytes, struct allocation **ret);
/* That of a descriptor, which it takes over, in this process. Held once. */
struct allocation *allocation_of(int fd, int ordinal, uint64_t bytes);
struct allocation *allocation_find(CUmemGenericAllocationHandle handle);
void allocation_hold(struct allocation *allocation);
void allocation_drop(struct allocation *allocation);

/* What lies at an address: a whole allocation. */
struct mapping {
	struct mapping *next;
	CUdeviceptr address;
	struct allocation *allocation;
	CUmemAccess_flags access[DEVICES_MAX]; /* by ordinal */
	bool plain; /* cuMemAlloc's, not cuMemMap's */
};

/* The mapping that `address` lies in, or NULL. */
struct mapping *mapping_find(CUdeviceptr address);
/* Makes the CPU's view what the access flags say. */
CUresult mapping_protect(struct mapping *mapping);
/* Maps without any access; holds the allocation. */
struct mapping *mapping_add(CUdeviceptr address, struct allocation *allocation);
/* Back to reserved addresses; drops the allocation. */
void mapping_remove(struct mapping *mapping);
/* A mapping as cuMemAlloc makes it: with access from all devices, at addresses of its own, and the only hold on the allocation. */
CUresult mapping_plain(CUdeviceptr address, struct allocation *allocation);
/* Ends it, and gives its addresses back. CUDA_ERROR_INVALID_VALUE: none begins at this address. */
CUresult mapping_plain_end(CUdeviceptr address);

/* Between memory of a device and `host`; CUDA_ERROR_INVALID_VALUE where the device has no right to it. */
stream_work_fn copy_in, copy_out;

/* One of the kernels (kernel_sha256.c). */
stream_work_fn kernel_sha256;

/* Whether all of it is registered with the driver, or the driver's own. */
bool host_pinned(const void *address, size_t bytes);

/* Addresses of `bytes`, a multiple of the granularity, that fault. 0: none. */
CUdeviceptr addresses_take(uint64_t bytes, uint64_t alignment, CUdeviceptr wish);
void addresses_give(CUdeviceptr address, uint64_t bytes);

#endif
