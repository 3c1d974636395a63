/* gpuwm: model weights that are loaded once and mapped by many.
 *
 * This is the whole public interface of libgpuwm-client. A worker connects,
 * attaches to a version and reads its tensors in place:
 *
 *     struct gpuwm_client *client;
 *     struct gpuwm_mapping *mapping;
 *     struct gpuwm_tensor tensor;
 *
 *     if (gpuwm_connect(NULL, &client) < 0 ||
 *         gpuwm_attach(client, "llama@prod", NULL, &mapping) < 0 ||
 *         gpuwm_tensor_find(mapping, "model.norm.weight", &tensor) < 0)
 *             die("%s", gpuwm_error()->message);
 *
 * Rules that hold for every function:
 *
 * - Errors. A function that can fail returns 0 (or a count) or a negative
 *   errno, and sets its `ret_` arguments on success only. gpuwm_error() then
 *   says what happened in words. The library never prints and never exits.
 * - Threads. A client and what was made from it may be used by any thread;
 *   calls on one client wait for each other, calls on different clients do
 *   not. A mapping's tensors may be read by all threads at once without calls.
 * - fork. A child inherits mappings of host memory and may read them. In it
 *   every call on a client, mapping or publish of the parent returns -ECHILD;
 *   the parent's leases are untouched, by deleters of exports and gpuwm_drop too.
 *   Connect again in the child.
 * - Options structs begin with their size: use GPUWM_OPTIONS(type), or memset
 *   and set `size`. Fields that an older header lacks count as zero; fields of
 *   a newer header that this library does not know must be zero, else -EINVAL.
 * - CUDA. The library opens libcuda.so.1 itself when a GPU is asked for, and
 *   leaves the caller's current context as it was. It is not needed for `host`.
 * - Signals. If a signal's handler interrupts a system call (no SA_RESTART), the
 *   library repeats the system call: no function returns -EINTR.
 * - Waits are in milliseconds: 0 does not wait, -1 waits for ever. A gpuwmd that
 *   does not answer for 30 seconds longer than that is given up: -ETIMEDOUT for
 *   that call, and the client connects again.
 * - Restarts. gpuwmd may crash or be upgraded: what is mapped stays mapped, and
 *   the library connects again by itself and takes every lease again, without a
 *   word. A thread of the library sees to it: the first lease of a client begins
 *   it, it takes none of the program's signals, and it ends with the client. Only
 *   a version that is lost is told: gpuwm_connect_options.lost, gpuwm_mapping_check.
 *   A call waits up to restart_ms for the next gpuwmd: -ECONNREFUSED, nothing was
 *   done. One whose answer was lost is repeated where that is safe; where it is
 *   not (swap, pin, unpin, load, retire, remove, kick, cancel, drain, publish_begin) it is
 *   -ECONNABORTED: it may or may not be done; look, then repeat. A call is
 *   -ECONNABORTED too if this process lacks the memory or the descriptors to read
 *   its answer.
 * - Handles are freed by their own function, which takes NULL. Free in any
 *   order; a mapping or publish keeps the connection that it needs.
 */
#ifndef GPUWM_CLIENT_H
#define GPUWM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden visibility: what is declared here is what it exports. */
#pragma GCC visibility push(default)

/* The one place that says the version of gpuwm; the Makefile reads it here. */
#define GPUWM_VERSION_MAJOR 0
#define GPUWM_VERSION_MINOR 1
#define GPUWM_VERSION_PATCH 0

#ifdef __cplusplus
#define GPUWM_OPTIONS(type)                                                                                    \
	([] {                                                                                                  \
		type o_ = {};                                                                                  \
		o_.size = sizeof(o_);                                                                          \
		return o_;                                                                                     \
	}())
#else
#define GPUWM_OPTIONS(type) ((type){.size = sizeof(type)})
#endif

struct gpuwm_client; /* a connection to gpuwmd */
struct gpuwm_mapping; /* a version, mapped, under a lease */
struct gpuwm_handles; /* a version's descriptors, under a lease */
struct gpuwm_publish; /* a version in the making */
struct gpuwm_events; /* a subscription */

struct DLManagedTensor; /* DLPack's, of gpuwm/dlpack.h or of any framework */
struct DLManagedTensorVersioned;

/* "0.1.0": of the library that is running. */
const char *gpuwm_library_version(void);

/* ---- errors ----------------------------------------------------------- */

/* The last error of this thread; valid until the next call of this thread. */
struct gpuwm_error {
	int code; /* negative errno */
	const char *name; /* "ENOENT" */
	const char *message; /* what happened to what */
	const char *detail; /* the limit or the remedy; may be "" */
};
const struct gpuwm_error *gpuwm_error(void);

/* ---- connecting ------------------------------------------------------- */

enum gpuwm_connect_flags {
	GPUWM_CONNECT_ADMIN = 1, /* admin.sock: operators' calls */
	GPUWM_CONNECT_ONCE = 2, /* this connection only, and no thread: when it ends its leases
				   are gone, and every call is -ECONNRESET */
};

/* A lease that was lost with a restart of gpuwmd, or that an operator revoked. Its mapping stays valid until
 * gpuwm_detach: the library unmaps nothing by itself. Of a revoked lease gpuwmd counts the memory as used until the
 * mapping is detached (or the process has exited): detach soon, or leave the version by gpuwm_switch. */
struct gpuwm_lost {
	const char *version; /* 32 digits; this and the next: valid in the callback */
	const char *model, *tag, *device;
	uint32_t rank;
	struct gpuwm_error error; /* why; -ENOENT: gpuwmd came back without it; -ESTALE: its memory was
				     not kept, or the lease was revoked; -EDQUOT; -EPROTONOSUPPORT: the new
				     gpuwmd speaks another protocol, and the client is of no use any more */
	bool revoked; /* an operator revoked it (gpuwmctl kick, retire --force): the code is -ESTALE */
};
/* Called once for each, from a thread of the library, after the rest was taken again. Every call may be
 * made from it, gpuwm_attach, gpuwm_detach and gpuwm_close too. In other threads the last gpuwm_close or
 * gpuwm_detach of the client waits for it to return: it must not wait for such a thread. It may be called for as
 * long as a mapping of the client is there, also one that was dropped. A client with GPUWM_CONNECT_ONCE has no such
 * thread and calls nobody: gpuwm_mapping_check tells. */
typedef void gpuwm_lost_fn(const struct gpuwm_lost *lost, void *user_data);

struct gpuwm_connect_options {
	size_t size;
	const char *socket; /* path of the (worker) socket. NULL: $GPUWM_SOCKET, else
			       $XDG_RUNTIME_DIR/gpuwm/gpuwm.sock if it exists, else
			       /run/gpuwm/gpuwm.sock. With GPUWM_CONNECT_ADMIN,
			       admin.sock in the same directory. One that is relative is
			       found again from another folder, unless it is too long then */
	const char *name; /* who connects, for `gpuwmctl clients`, in 128 bytes. NULL: the program's name */
	int64_t wait_ms; /* retry so long while nobody listens */
	unsigned flags;
	int64_t restart_ms; /* how long a call waits for a gpuwmd that went away; 0: 30 seconds; -1: for ever */
	gpuwm_lost_fn *lost; /* NULL: nobody is told; gpuwm_mapping_check still knows */
	void *lost_data;
};

/* Connects and says hello. The client is the caller's until gpuwm_close.
 * -ECONNREFUSED, -ENOENT: nobody listens there; -EACCES: the socket's mode or
 * group; -EPROTONOSUPPORT: versions (both are named); -EDQUOT: too many sessions. */
int gpuwm_connect(const struct gpuwm_connect_options *options, struct gpuwm_client **ret_client);

/* Drops the caller's use. The connection ends when the last mapping and
 * publish made from it is gone too. Always NULL. */
struct gpuwm_client *gpuwm_close(struct gpuwm_client *client);

/* One round trip; *ret_ns (may be NULL) is how long it took. */
int gpuwm_ping(struct gpuwm_client *client, uint64_t *ret_ns);

/* The daemon's instance id (32 digits), changed by each start of it: of the one
 * that was connected to last. The text is valid as long as the client. */
const char *gpuwm_instance(const struct gpuwm_client *client);
/* The id of what it holds, which stays for as long as the versions do, and how
 * often gpuwmd was started with it, from 1. "" and 0: it does not tell. */
const char *gpuwm_ledger(const struct gpuwm_client *client);
uint64_t gpuwm_epoch(const struct gpuwm_client *client);

struct gpuwm_device {
	const char *id; /* "host", "GPU-…"; valid as long as the client */
	const char *name;
	bool is_cuda;
	uint64_t total, budget; /* bytes */
	uint64_t granularity; /* segments are multiples of this */
	const char *lost; /* how the GPU was lost; it then takes no load and no publish. "": it was not lost */
};

/* Devices as gpuwm_connect was told them, `host` first. The count; *ret_devices is an array
 * that the client owns. */
size_t gpuwm_devices(const struct gpuwm_client *client, const struct gpuwm_device **ret_devices);

/* ---- versions --------------------------------------------------------- */

struct gpuwm_version_info {
	char id[33]; /* 32 digits */
	char model[129];
	char tag[129];
	char device[64];
	uint32_t rank, world;
	uint64_t generation; /* how often the alias that was asked for has moved; 0: none was */
	uint64_t bytes; /* of all segments */
	uint32_t segments;
	uint64_t tensors;
	uint8_t layout[16], content[16]; /* digests */
};

enum gpuwm_dtype {
	GPUWM_BOOL = 1,
	GPUWM_F4,
	GPUWM_F6_E2M3,
	GPUWM_F6_E3M2,
	GPUWM_U8,
	GPUWM_I8,
	GPUWM_F8_E5M2,
	GPUWM_F8_E4M3,
	GPUWM_F8_E8M0,
	GPUWM_F8_E4M3FNUZ,
	GPUWM_F8_E5M2FNUZ,
	GPUWM_I16,
	GPUWM_U16,
	GPUWM_F16,
	GPUWM_BF16,
	GPUWM_I32,
	GPUWM_U32,
	GPUWM_F32,
	GPUWM_C64,
	GPUWM_F64,
	GPUWM_I64,
	GPUWM_U64,
};
/* "BF16", as safetensors spells it; NULL for a code that is none. */
const char *gpuwm_dtype_name(unsigned dtype);
/* Bits of one element; 0 for a code that is none. */
unsigned gpuwm_dtype_bits(unsigned dtype);

/* ---- attaching -------------------------------------------------------- */

/* A field of a version's key: what has to be equal for its bytes to be of use to who attaches (the dtype, how it is
 * quantised, the engine and its version, how many ranks, …). Which fields there are is the publisher's to say. The
 * name is one as models have, the value UTF-8 of at most 255 bytes; at most 64 fields. */
struct gpuwm_key_field {
	const char *name, *value;
};

struct gpuwm_attach_options {
	size_t size;
	const char *device; /* "host" or a UUID. NULL: where the version is, if that is one
			       device; else the device of the caller's current CUDA context */
	uint32_t rank;
	int64_t wait_ms; /* for a version that is not ready or not there yet */
	void *address; /* where the mapping is wished to begin, a multiple of 2 MiB; NULL: anywhere.
			  Nothing depends on it: compare with gpuwm_mapping_address */
	bool populate; /* host: make every page present now, so that no read faults later: takes about as
			  long as reading a byte of each. -ENOTSUP before Linux 5.14. A GPU needs none */
	const char *const *peers; /* GPUs whose kernels are to read it too, over NVLink or PCIe, at the same
				     addresses; NULL. -ENOTSUP: one does not reach the version's GPU */
	size_t peer_count; /* at most 15 */
	const char *const
		*globs; /* "model.layers.3.*": only segments that hold a tensor which one of them matches are
				     mapped; of the others' tensors data is NULL. As in Python: `*` and `?` match
				     any characters, no escapes. -ENOENT: one matches no tensor. NULL: all */
	size_t glob_count;
	bool private_writes; /* host: the memory may be written; a page that is becomes this attachment's own copy, which
				it loses with gpuwm_switch and gpuwm_exchange, and which the mapping is not
				shared for. -ENOTSUP: on a GPU */
	bool look; /* operators (GPUWM_CONNECT_ADMIN; -EACCES): also of a version that gives no leases because it
		      is tainted or retiring, to find out what is wrong with it */
	/* Each of these is in the version's key, and equal; also of what gpuwm_switch is to put there, unless it gets a
	 * key of its own. -EKEYREJECTED: names the field. NULL: any key. */
	const struct gpuwm_key_field *key;
	size_t key_count;
	/* Who made the version must be one of these users or, with owner_operator, an operator; the same holds for what
	 * gpuwm_switch is to put there. So nobody is served by who took a name first. -EACCES says whose the version is and
	 * whose was asked for. Neither of both: anybody's version will do. */
	const uint32_t *owner_uids;
	size_t owner_uid_count; /* at most 16 */
	bool owner_operator;
};

/* Leases and maps a version, read-only. ref: "model", "model@tag",
 * "model@alias" or a version id. Costs one round trip and a few driver calls,
 * however many tensors there are. Two attaches of one version and rank on one
 * device, with the same peers and segments, share the mapping (same addresses, whatever `address` says) and hold
 * a lease each.
 * On host a mapping keeps one descriptor open for each segment. From its first lease on, a client keeps one descriptor
 * besides its socket (not with GPUWM_CONNECT_ONCE). A forked child has none of these descriptors.
 * A write into the memory faults (but for private_writes): SIGSEGV on host, an illegal address in a kernel.
 * -ENOENT (also a model that the rules of gpuwmd's configuration do not let this user attach to), -ENODEV (lists where
 * the version is, or says how its GPU was lost), -ETIMEDOUT, -EDQUOT, -ESHUTDOWN, -EKEYREJECTED, -EACCES (the version is of
 * another owner than the options ask for), -ENOTSUP (no CUDA driver here), -EBADMSG; -EAGAIN: the thread that takes leases
 * again after a restart could not be made; -EMFILE, -ENFILE: there is no descriptor to wake that thread
 * (GPUWM_CONNECT_ONCE needs neither). */
int gpuwm_attach(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		 struct gpuwm_mapping **ret_mapping);

/* Unmaps (when this was the last use in the process) after waiting for the
 * device to be idle, then gives the lease back. Pointers of its tensors are
 * dead afterwards. 0, at once while gpuwmd is away: the lease ended with the
 * connection, and is not taken again; -EIO: unmapped, but gpuwmd did not know the
 * lease; -ECHILD: nothing was done; -EBUSY: nothing was done, since exports or holds
 * of it are alive (their number is told), or a CUDA stream is being captured. mapping may be NULL. */
int gpuwm_detach(struct gpuwm_mapping *mapping);

/* Gives the handle up, at once and without an error: what gpuwm_detach does is done by a thread of the library, after
 * the last export and hold is gone: when the device is idle, and later while a CUDA stream is being captured. The
 * lease goes on until the memory is unmapped. Nothing is done in exit, whose kernel takes everything back, nor in a
 * forked child. Work that still reads the memory must have been queued in the device's primary context, as frameworks
 * do. Where that thread can't be made, the memory stays until a later call makes it. mapping may be NULL. */
void gpuwm_drop(struct gpuwm_mapping *mapping);

/* 0 while the lease is held, or will be taken again; else what it was lost with,
 * as in gpuwm_lost. With GPUWM_CONNECT_ONCE -ECONNRESET when the connection has ended.
 * -ENOTRECOVERABLE: a switch or an exchange lost the memory. -ESTALE: an operator revoked it, among others:
 * gpuwm_mapping_revoked. */
int gpuwm_mapping_check(const struct gpuwm_mapping *mapping);
/* Whether an operator revoked the lease. It is never taken again. The memory stays mapped until gpuwm_detach, or until
 * gpuwm_switch puts another version there under a new lease; then gpuwmd hears that it is unmapped. With
 * GPUWM_CONNECT_ONCE it is known after gpuwm_mapping_check. False in a forked child. */
bool gpuwm_mapping_revoked(const struct gpuwm_mapping *mapping);

/* Valid until gpuwm_detach; gpuwm_switch and gpuwm_exchange change what it says. */
const struct gpuwm_version_info *gpuwm_mapping_version(const struct gpuwm_mapping *mapping);

/* Where the addresses begin that hold all segments, and how many bytes that are (ret_bytes may be NULL).
 * Processes that wish for the same address, and get it, have the same pointers. NULL: there are no segments. */
const void *gpuwm_mapping_address(const struct gpuwm_mapping *mapping, uint64_t *ret_bytes);

struct gpuwm_switch_options {
	size_t size;
	int64_t wait_ms; /* for a version that is not ready or not there yet */
	bool idle; /* the caller has waited for the device, and captures nothing: do not wait again */
	/* What this switch asks of the new version's key, in place of what gpuwm_attach (or gpuwm_publish) asked for:
	 * fewer fields, say, where a key also says which checkpoint it is, or others. Later switches ask for it only if
	 * they get it too. Each field is in the version's key, and equal; a field that the version lacks is
	 * -EKEYREJECTED. NULL: as when it was attached. Not NULL with a key_count of 0: any key will do. */
	const struct gpuwm_key_field *key;
	size_t key_count;
};

/* Puts another version of the same layout where this one is mapped: at the same addresses, on the same
 * device, of the same rank. Every data pointer, shape and stride stays true, and so do CUDA graphs that were
 * captured with them: what runs afterwards reads the new bytes. To be called at a quiet point of the caller's
 * own: it waits until the device is idle, then unmaps, maps and exchanges the leases; on host each segment
 * changes in one step. While it runs no thread may use the mapping, nor queue work that reads it.
 * Afterwards gpuwm_mapping_version, metadata, files and digests are the new version's, and texts that were
 * told before (names, shapes, strides, files) are gone: look them up again. What the caller made from the old
 * bytes itself (copies, caches, merged adapters, pages on host that are to be present) is its own to renew.
 * 0, also when the mapping is of that version already: only the lease is a new one then, so it heals a
 * lease that was lost, and of keys only the one in the options is asked for. Errors leave everything as it was:
 * -EKEYREJECTED: another key than was asked for, in the options or when it was attached; -EXDEV: another layout, and the first
 * difference: detach and attach anew; -EBUSY: another attachment of this process shares the mapping (detach it
 * first: of several one can't move alone), or a CUDA stream is being captured; -EIO: the context is broken, or the
 * driver refused; -ECHILD; and all of gpuwm_attach. After these errors the mapping keeps its version and its lease. If an
 * operator has removed the alias that a worker follows, the call fails with -ENOENT: call it again at the next event
 * "swapped".
 * -ENOTRECOVERABLE: the library could map neither the new version nor the old one again. The memory is unmapped, and every
 * pointer into it is dead until another gpuwm_switch succeeds; else detach. */
int gpuwm_switch(struct gpuwm_mapping *mapping, const char *ref, const struct gpuwm_switch_options *options);

struct gpuwm_exchange_options {
	size_t size;
	bool idle; /* the caller has waited for the device, and captures nothing: do not wait again */
	bool check; /* compare only: the call fails where an exchange would, but asks the device nothing and changes nothing */
};

/* Puts the version of `other` where `mapping` is, and that of `mapping` where `other` is. Both are of one layout, on
 * one device, of one rank, with the same segments and peers. No gpuwmd is asked, so that it can't fail for want of
 * one: an engine of several ranks attaches every rank to the next version, then exchanges all of them, and goes back
 * by the same call. Pointers, CUDA graphs, exports and holds stay with the addresses, as in gpuwm_switch, by whose
 * rules it is to be called (for both mappings). Versions with their texts, leases (lost ones too), and the clients
 * that hold the leases change sides. The keys and owners that gpuwm_attach was given stay, for gpuwm_switch; nothing
 * is asked of them here. gpuwm_detach of `other` then gives the lease on the old version back.
 * 0, also when both are of one version: the memory stays then. Errors leave everything as it was: -EXDEV: another
 * layout, and the first difference; another device, rank, subset or other peers; -EINVAL: one mapping twice, or only
 * one with private_writes; -EBUSY: another attachment of this process shares one of the two (names it), or a CUDA
 * stream is being captured; -EIO: the context is broken, or the driver refused; -ECHILD.
 * -ENOTRECOVERABLE: the one that is named, or both, could not be mapped again: as in gpuwm_switch, until another
 * gpuwm_switch or gpuwm_exchange succeeds. */
int gpuwm_exchange(struct gpuwm_mapping *mapping, struct gpuwm_mapping *other,
		   const struct gpuwm_exchange_options *options);

struct gpuwm_tensor {
	const char *name; /* this and the next pointers: valid until gpuwm_detach or gpuwm_switch */
	enum gpuwm_dtype dtype;
	uint32_t ndim;
	const uint64_t *shape; /* ndim entries */
	const int64_t *strides; /* ndim entries, in elements */
	const void *data; /* host memory, or a CUDA device pointer of the version's device: until gpuwm_detach;
			  NULL: not mapped, see gpuwm_attach_options.globs */
	uint64_t bytes;
	uint32_t segment; /* position, and offset in it in bytes */
	uint64_t offset;
	uint8_t digest[16];
};

/* Tensors are in the order of their names (bytes). */
uint64_t gpuwm_tensor_count(const struct gpuwm_mapping *mapping);
/* -ERANGE. */
int gpuwm_tensor_at(const struct gpuwm_mapping *mapping, uint64_t position, struct gpuwm_tensor *ret_tensor);
/* All of them, in one call: gpuwm_tensor_count many. -ECHILD, -ENOTRECOVERABLE. */
int gpuwm_tensors(const struct gpuwm_mapping *mapping, struct gpuwm_tensor *ret_tensors);
/* -ENOENT. O(log n). */
int gpuwm_tensor_find(const struct gpuwm_mapping *mapping, const char *name, struct gpuwm_tensor *ret_tensor);

/* Free-form texts of the version; NULL when there is none. Valid until gpuwm_detach or gpuwm_switch. */
const char *gpuwm_metadata(const struct gpuwm_mapping *mapping, const char *key);
/* Position 0, 1, …: 0 or -ERANGE. */
int gpuwm_metadata_at(const struct gpuwm_mapping *mapping, uint32_t position, const char **ret_key,
		      const char **ret_value);
/* Small files that the version carries ("config.json"): NULL when there is none. A publisher gives them any names:
 * who writes them into a folder looks for '/' first. */
const void *gpuwm_file(const struct gpuwm_mapping *mapping, const char *name, uint32_t *ret_bytes);
int gpuwm_file_at(const struct gpuwm_mapping *mapping, uint32_t position, const char **ret_name,
		  const void **ret_data, uint32_t *ret_bytes);

/* Copies a part of a tensor to host memory, wherever it lies: for tools and
 * tests. Synchronous. On a GPU the first call makes the device's context, which
 * is kept until gpuwm_detach. -ERANGE. */
int gpuwm_tensor_read(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, uint64_t offset,
		      void *buffer, uint64_t bytes);

/* Reads tensors again where this mapping has them, all in one go, and compares them with the digests that the version got
 * when it was made: whether this process reads what every other does. names NULL: all that are mapped. On
 * a GPU a kernel reads at the memory's speed, from the device's context as gpuwm_tensor_read makes it; what was
 * queued before is waited for. -EBADMSG: the message has the first that differs, and both digests; -ENOENT,
 * -ENODATA: no such tensor, one that is not mapped, before anything is read; -EBUSY: a CUDA stream is being captured;
 * -EIO, -ENOMEM, -ECHILD, -ENOTRECOVERABLE. */
int gpuwm_tensors_verify(const struct gpuwm_mapping *mapping, const char *const *names, size_t count);

/* ---- for other frameworks --------------------------------------------- */

/* A tensor as DLPack has it: data is the tensor's own address (NULL when it has no bytes), byte_offset 0, strides are
 * always there, device_id is this process's number of the GPU. Shape and strides are the export's own: they outlive
 * gpuwm_switch. 1: it goes out as bytes (uint8), to be viewed as its dtype by who takes it, since consumers lack it:
 *   F8_*           the same shape and strides;
 *   F4, F6_*       the last dimension counts bytes; where rows are no whole bytes, and of an empty one, one dimension
 *                  of all its bytes.
 * The memory stays mapped and its lease goes on until the deleter is called, whatever becomes of the handle: see
 * gpuwm_drop. A deleter only counts: it may be called from any thread, under any lock, in a stream capture, in exit,
 * and in a forked child, where it concerns nobody. Without private_writes nothing may write into the tensor: the
 * versioned one says so.
 * 0 or 1; -ERANGE: no tensor of this mapping; -ENODATA: one that is not mapped; -EOVERFLOW: a dimension of an empty
 * tensor is above 2^63 - 1; -EAGAIN: the thread of gpuwm_drop could not be made; -ECHILD; -ENOTRECOVERABLE; -ENOMEM. */
int gpuwm_dlpack(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor,
		 struct DLManagedTensor **ret);
/* Tensors at `count` positions, all or none, in one call; 0 also where one goes out as bytes. Errors of gpuwm_dlpack. */
int gpuwm_dlpack_many(struct gpuwm_mapping *mapping, const uint64_t *positions, size_t count,
		      struct DLManagedTensor **ret);
/* DLPack 1.0; only for a consumer that asks for it. */
int gpuwm_dlpack_versioned(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor,
			   struct DLManagedTensorVersioned **ret);
/* A destructor for Python's capsules "dltensor" and "dltensor_versioned" of exports: calls the deleter of one that
 * nobody consumed. The library needs no Python: it finds the functions that the process has. */
void gpuwm_dlpack_capsule_end(void *capsule);

/* Holds the mapping as an export does, for objects of other kinds: arrays, views of the memory. -ECHILD, -EAGAIN. */
int gpuwm_hold(struct gpuwm_mapping *mapping);
/* Gives a hold back: by the rules of a deleter. */
void gpuwm_unhold(struct gpuwm_mapping *mapping);
/* Exports and holds that are alive. */
uint64_t gpuwm_mapping_exports(const struct gpuwm_mapping *mapping);

/* Say when a capture of a CUDA stream begins and ends. CUDA makes a capture invalid when its context is waited for, by
 * whatever thread, and tells nobody beforehand. In between the library waits for no context: what gpuwm_drop is to unmap
 * stays until the end, and gpuwm_detach, gpuwm_switch, gpuwm_exchange, gpuwm_tensors_verify, gpuwm_vacate,
 * gpuwm_occupy, gpuwm_reservation_free and both commits of a publish are -EBUSY.
 * begin waits for what the library's thread is at. Captures may overlap, in any threads. Without this they find captures
 * on streams that go with the default one; others are lost to these calls, or where the last export goes. */
void gpuwm_capture_begin(void);
void gpuwm_capture_end(void);

/* ---- addresses whose memory comes later -------------------------------- */

struct gpuwm_reservation;

/* Reserves addresses for at least `bytes` on a device ("host" or a UUID), all of them backed by one small block of memory
 * that is mapped again and again: what is written at one address is read at others too. So a standby engine can
 * reserve the addresses of a KV cache, run kernels on them and capture CUDA graphs, while another engine has the
 * memory. gpuwm_occupy puts memory of its own at the same addresses later. The block takes at most 64 MiB.
 * The call does not need gpuwmd. One thread at a time may call with a reservation.
 * 0; -EINVAL: `device` is no device, or `bytes` is 0 or too large; -ENODEV, -ENOTSUP: this process can't use that
 * device; -ENOSPC: the device has no room for the block; -ENOMEM, -EMFILE, -EIO. */
int gpuwm_reserve(const char *device, uint64_t bytes, struct gpuwm_reservation **ret_reservation);
/* Where the addresses begin (a device pointer on a GPU), a multiple of 2 MiB, and how many bytes they are: `bytes`
 * rounded up to whole blocks. ret_bytes may be NULL. */
void *gpuwm_reservation_address(const struct gpuwm_reservation *reservation, uint64_t *ret_bytes);
/* Gives the block back, after waiting until the device is idle. From now on nothing may use the addresses until
 * gpuwm_occupy has returned 0. Call it after warming up and capturing: gpuwm_occupy then has less to do. On host the
 * block's memory goes back when other memory takes its place, or with gpuwm_reservation_free.
 * 0, also if the block is gone already. After an error the block is there as before: -EBUSY: a CUDA stream is being
 * captured; -EIO; -ECHILD. */
int gpuwm_vacate(struct gpuwm_reservation *reservation);
/* Puts memory behind all of the addresses, filled with zeros, after gpuwm_vacate; what the block held is gone. It takes
 * memory piece by piece. Where there is none it tries again for wait_ms (-1: for ever): the memory of a process that was
 * killed comes back within some hundred milliseconds. While it runs, nothing may use the addresses.
 * 0, also if the memory is there already. After these errors no memory is taken (on host it goes back as with
 * gpuwm_vacate), and the call may be repeated: -ENOSPC: the device has too little memory, and the message says how much
 * is missing; -ENOMEM, -EMFILE, -EIO. The call also fails with the codes of gpuwm_vacate. */
int gpuwm_occupy(struct gpuwm_reservation *reservation, int64_t wait_ms);
/* Unmaps the memory and gives the addresses up, after waiting until the device is idle. NULL is fine. -EBUSY: nothing
 * was done, since a CUDA stream is being captured; -ECHILD. */
int gpuwm_reservation_free(struct gpuwm_reservation *reservation);

/* Installs a handler for SIGSEGV, once for the process. No other function of the library installs one.
 * If a thread writes into a tensor on host that the library mapped read-only, the handler writes one line to standard
 * error, with the names of the tensor and the version. Then it restores the handler that was there before (or the
 * default) and returns. The thread repeats its write, and the process ends as it would have without this function: it
 * dumps core, or its own handler prints a backtrace. The handler passes every other SIGSEGV on to the one that was there
 * before. A handler that the program installs later replaces this one, unless the later one calls it.
 * The handler calls only async-signal-safe functions. A write by a GPU's kernel raises no signal: CUDA ends the
 * context, and the next calls return CUDA_ERROR_ILLEGAL_ADDRESS without an address. */
void gpuwm_name_faults(void);

/* ---- raw handles: for those who map themselves ------------------------ */

/* A lease and its descriptors, nothing mapped but the index. */
int gpuwm_get_handles(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		      struct gpuwm_handles **ret_handles);
/* Closes the descriptors that were not taken and gives the lease back; errors
 * as in gpuwm_detach. */
int gpuwm_handles_release(struct gpuwm_handles *handles);
/* As gpuwm_mapping_check. */
int gpuwm_handles_check(const struct gpuwm_handles *handles);
const struct gpuwm_version_info *gpuwm_handles_version(const struct gpuwm_handles *handles);
/* The descriptor (close-on-exec, stays owned by the handles: dup it to keep
 * it) and exact size of segment `position`; -ERANGE. */
int gpuwm_handles_segment(const struct gpuwm_handles *handles, uint32_t position, uint64_t *ret_bytes);
/* The same for the index (format: docs/protocol.md). */
int gpuwm_handles_index(const struct gpuwm_handles *handles, uint64_t *ret_bytes);
uint64_t gpuwm_handles_tensor_count(const struct gpuwm_handles *handles);
/* As gpuwm_tensor_at; data is NULL. */
int gpuwm_handles_tensor_at(const struct gpuwm_handles *handles, uint64_t position,
			    struct gpuwm_tensor *ret_tensor);

/* ---- publishing ------------------------------------------------------- */

struct gpuwm_tensor_spec {
	const char *name;
	enum gpuwm_dtype dtype;
	uint32_t ndim;
	const uint64_t *shape;
	const int64_t *strides; /* in elements: a permutation of dense; NULL: dense, last dimension fastest */
	const char *tied_to; /* the name of a spec of the same dtype and bytes whose memory this shares; NULL.
				Files have no such thing: in safetensors two tensors never share bytes */
};

/* Attaches to a version, or elects this client as the one who builds it: of all who claim a name at once one
 * is elected, and the others wait for what it builds. To be elected needs the right to publish into the model, and a
 * tag, not an alias.
 * 0: attached, as by gpuwm_attach (options->wait_ms is how long it waits for who builds it). 1: elected;
 * *ret_mapping is not set. Then either gpuwm_publish_begin of this name on this client, which takes the claim over:
 * those who wait are attached when that is committed. Or gpuwm_claim_give_up. When neither comes to pass, because the
 * publish fails or is aborted, the process dies or the client is closed, the next one of those who wait is elected.
 * Until then gpuwm_publish_begin of the name is -EBUSY for everybody else. A version that others build without a claim is
 * waited for too. Who was elected stays so across a restart of gpuwmd: the claim is reserved for its user for grace_ms of
 * the configuration (10 s by default) after that. But it ends a publish that is not committed (gpuwm_publish_commit says so),
 * and with it the claim: claim again.
 * Where several ranks make a version, one process of them claims for all, and tells the others what came of it: to
 * join the publish that it begins (gpuwm_publish_options.join), or to attach to the version by its id, each its rank. If each
 * claimed by itself, ranks of different groups could wait for each other.
 * -ETIMEDOUT: who builds it; -EBUSY: this client has claimed it already (threads that are to wait for each other use a
 * client each); -EACCES; -EDQUOT; -EEXIST: an alias has this name; and all of gpuwm_attach. */
int gpuwm_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct gpuwm_mapping **ret_mapping);
/* Not this client, after all: the next one is elected. 0 also when the claim had ended with its connection;
 * -ENOENT: this client has not claimed it, or a publish has taken the claim over (gpuwm_publish_abort ends both). */
int gpuwm_claim_give_up(struct gpuwm_client *client, const char *name);

struct gpuwm_publish_options {
	size_t size;
	const char *name; /* "model@tag"; required */
	const char *device; /* "host" or a UUID; required */
	uint32_t rank, world; /* world 0 reads as 1 */
	const char *
		join; /* the id (gpuwm_publish_id) of the publish that another part began; NULL. gpuwmd takes it from the
			     user who began the publish, from those whom join_uids and join_gids named then, and from
			     operators: for everybody else there is no such publish (-ENOENT) */
	const char *alias; /* moved to the version when it is ready; NULL */
	uint64_t
		align; /* of every tensor's address: a power of two from 16 to 2 MiB; 0: 256. Part of the layout:
			   versions that gpuwm_switch is to go between have the same */
	uint64_t segment_bytes; /* memory is made in pieces of at most this (more only for a tensor that is
				   larger): a multiple of 2 MiB up to 1 TiB; 0: 16 GiB, or what 252 pieces take.
				   Part of the layout, as align. -EINVAL where they would be more than 252: names
				   the smallest that fits */
	bool stepwise; /* make a piece when a tensor in it is first asked for (gpuwm_publish_memory,
			  gpuwm_publish_write), and the rest at the commit. Who writes in the order of
			  gpuwm_publish_order, and frees what is written, needs room for one piece more
			  than for what there was: see segment_bytes */
	const struct gpuwm_key_field
		*key; /* the version's key; NULL: it has none. Of several parts each has its own.
					      gpuwm_metadata tells the fields, as "key.NAME" */
	size_t key_count;
	const uint32_t
		*owner_uids; /* for gpuwm_publish_commit_attached: whose versions gpuwm_switch is to put into
				       the mapping, as in gpuwm_attach_options; nothing is asked of this one */
	size_t owner_uid_count;
	bool owner_operator;
	const uint32_t *join_uids,
		*join_gids; /* users and groups who may join this publish besides the user who begins it; at
						  most 16 of each, and only without `join`. NULL: nobody else */
	size_t join_uid_count, join_gid_count;
};

/* Reserves budget, plans the layout (which follows from names, dtypes and
 * shapes alone) and makes writable, zeroed memory for every tensor (with options.stepwise: its addresses
 * only). The specs are copied. Needs the right to publish into the model: see "Who may do what" in the README. Until the
 * publish ends a thread of the library tells gpuwmd that this process lives, however long it fills the memory. A process
 * that is stopped for publish_silence_ms of the configuration (30 s by default) loses its grant: the commit is
 * -ETIMEDOUT then.
 * -EACCES, -EEXIST (the tag or rank is taken), -EBUSY (another one has claimed the name: who), -ENOSPC (quotes the budget and
 * what is free), -EINVAL (names the tensor), -EDQUOT (a limit of this user: the error names it), -EAGAIN (the thread could
 * not be made). */
int gpuwm_publish_begin(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
			const struct gpuwm_tensor_spec *specs, size_t count,
			struct gpuwm_publish **ret_publish);

/* 32 digits; for gpuwm_publish_options.join. Valid until commit or abort. gpuwmd tells the id to nobody else: whoever is
 * to join gets it from this process. */
const char *gpuwm_publish_id(const struct gpuwm_publish *publish);

/* Where tensor `position` of the specs is to be written: host memory or a
 * device pointer, writable until commit or abort. All tensors lie in one range of addresses. -ERANGE; with
 * options.stepwise also -ENOSPC: the device has no room for the piece. Nothing is lost, try again or abort. */
int gpuwm_publish_memory(struct gpuwm_publish *publish, size_t position, void **ret_data, uint64_t *ret_bytes);
/* The positions of all tensors (as many as there were specs) in the order in which they lie in memory: who
 * writes in it needs one piece of memory after the other. -ENOMEM. */
int gpuwm_publish_order(const struct gpuwm_publish *publish, size_t *ret_positions);
/* Copies host memory into a tensor, wherever it lies. Synchronous. -ERANGE; as gpuwm_publish_memory. */
int gpuwm_publish_write(struct gpuwm_publish *publish, size_t position, uint64_t offset, const void *data,
			uint64_t bytes);
/* The same memory for other frameworks, in DLPack: writable, else as gpuwm_dlpack (1: it goes out as bytes). It
 * holds the publish's memory: whatever becomes of the publish, data stays a valid address until the deleter is called.
 *   gpuwm_publish_commit_attached, done   the version's memory: it holds the mapping, as any export of it, and is
 *                                         not to be written any more;
 *   gpuwm_publish_commit, done            the same memory, not to be written any more, but under no lease: gpuwmd
 *                                         does not know that it is used;
 *   the commit failed, or an abort        this process's own memory with the bytes that it has, writable; gpuwmd
 *                                         has given its budget to others. On host what was sealed by then is copied
 *                                         page by page where it is written, and what was not is shared with forked
 *                                         children. On a GPU it can only be read after -ECONNABORTED, -ECONNREFUSED,
 *                                         -ETIMEDOUT, -EPROTO and -ENOMEM: a version may have come of it.
 * On host a forked child has the memory from the commit or the abort on, not before.
 * -ERANGE; -EOVERFLOW, -EAGAIN, -ENOMEM as gpuwm_dlpack; as gpuwm_publish_memory. */
int gpuwm_publish_dlpack(struct gpuwm_publish *publish, size_t position, struct DLManagedTensor **ret);
/* DLPack 1.0, which says that it may be written; only for a consumer that asks for it. */
int gpuwm_publish_dlpack_versioned(struct gpuwm_publish *publish, size_t position,
				   struct DLManagedTensorVersioned **ret);
/* Names and texts are UTF-8, here and in the specs, and no name begins with "key.": -EINVAL. */
int gpuwm_publish_metadata(struct gpuwm_publish *publish, const char *key, const char *value);
/* At most 32 MiB in all: -EFBIG. */
int gpuwm_publish_file(struct gpuwm_publish *publish, const char *name, const void *data, size_t bytes);

/* Waits for the device, digests, unmaps (what exports use is mapped for reading instead), seals, hands the memory over
 * and waits until it is checked. On success the version is ready, and gpuwmd no longer needs this process. A version of
 * several parts becomes ready when all parts are committed. Keep the client until all ranks have begun: the version fails
 * if the last connection that began one ends before. To learn whether it became ready, attach with wait_ms.
 * Frees the publish, but for -ECHILD and -EBUSY (a CUDA stream is being captured):
 * then nothing was done.
 * 0; 1: the same, but options.alias could not be moved (gpuwm_error says why).
 * -EBADMSG: the check failed; -ETIMEDOUT: gpuwmd heard nothing of this process for too long; -ECANCELED: aborted meanwhile (another part died, or
 * gpuwmd did: it keeps what is ready); -ECONNRESET: the publish ended with the
 * connection that it was begun on, publish again; -ECONNABORTED: gpuwmd took the
 * commit and did not come back in time; -EIO: somebody may write the memory (a mapping, an RDMA pinning), so it
 * can't be sealed. */
int gpuwm_publish_commit(struct gpuwm_publish *publish, struct gpuwm_version_info *ret_version);

/* The same, and the version is attached: under a lease, and mapped where the publish's memory was. Every pointer of
 * gpuwm_publish_memory and every export of gpuwm_publish_dlpack stays true, readable only: a write faults as in
 * any mapping. While it runs nobody may use the memory, nor queue work that does. Of several parts it waits until all
 * are ready: who makes more than one in a thread commits the others without this.
 * 0, or 1: the alias was not moved. 2: the version is ready and mapped, but no lease could be taken (gpuwm_error
 * says why, as gpuwm_mapping_check does from then on): gpuwm_switch to the same version takes one. In these cases
 * *ret_mapping is set. Errors are those of gpuwm_publish_commit; of several parts also what another failed with;
 * -ENOTRECOVERABLE: the memory could not be mapped again: exports have none. After an error but -ECHILD and -EBUSY memory that
 * has no exports is gone. */
int gpuwm_publish_commit_attached(struct gpuwm_publish *publish, struct gpuwm_mapping **ret_mapping);

/* Gives everything up and frees the publish; exports keep their memory. reason (may be NULL) is kept for
 * `gpuwmctl ls`. 0 also when it had ended with its connection. publish may be NULL. */
int gpuwm_publish_abort(struct gpuwm_publish *publish, const char *reason);

/* ---- operating: on a client connected with GPUWM_CONNECT_ADMIN ----------
 *
 * On another client: gpuwm_swap, for the owner of the model and for those whom `publish` or `operate` of its section
 * [model.N] in gpuwmd's configuration names; gpuwm_retire and gpuwm_remove, for them and for the publisher of the version; gpuwm_pin,
 * gpuwm_unpin and gpuwm_verify, for those whom `operate` names. Others get -EACCES. */

struct gpuwm_load_options {
	size_t size;
	const char *source; /* an absolute path, beneath a root of the daemon's configuration */
	const char *name; /* "model@tag" */
	const char *const *devices; /* replicas, or one a rank; NULL: the only GPU, or "host" without one */
	size_t device_count;
	const char *alias; /* moved when ready; NULL */
	bool dry_run; /* the job looks at the source and makes a plan, nothing else: gpuwm_query "jobs" tells it */
	const struct gpuwm_key_field *key; /* the version's key, as in gpuwm_publish_options; NULL */
	size_t key_count;
};
/* Starts a job and tells its number at once. */
int gpuwm_load(struct gpuwm_client *client, const struct gpuwm_load_options *options, uint64_t *ret_job);
/* Waits for the end of a job: 0 when it is done, 1 when it is done but its alias
 * could not be moved (gpuwm_error says why), its own error when it failed,
 * -ECANCELED, -ETIMEDOUT, -ENOENT; -ECONNABORTED: it ended with the gpuwmd that ran
 * it, list tells whether its version became ready. */
int gpuwm_job_wait(struct gpuwm_client *client, uint64_t job, int64_t wait_ms);
/* Cancels a queued or running job, and waits until the job has ended: about 2 seconds at most, and longer only while its
 * version is being stored. Returns 0 if the job was cancelled, by this call or by another one. -ENOENT: there is no such
 * job, or it has ended otherwise; the message says how. */
int gpuwm_job_cancel(struct gpuwm_client *client, uint64_t job);

struct gpuwm_swap_options {
	size_t size;
	const char *model;
	const char *alias; /* NULL: "current" */
	const char *to; /* a tag, an alias or a version id; NULL removes the alias */
	const char *expect; /* only if the alias names this version id now; 32 zeros: none; NULL */
	bool retire_old; /* retire the version that the alias named; `previous` is cleared if it names that version */
};
/* Moves an alias in one step. Sets ret_old (33 bytes, may be NULL) to the id of the version that the alias named, or to "".
 * Returns 0, or 1 if the alias was moved but gpuwmd could not retire the old version as retire_old asks, because another
 * alias names it (gpuwm_error says which): the old version stays as it is, and `previous` names it.
 * -EBUSY: `expect` does not hold; -ENOENT; -EINVAL: the version is not ready; -EBADMSG: it is tainted; -ENODEV: a part of it
 * was lost with its GPU. */
int gpuwm_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options, char ret_old[33]);
int gpuwm_pin(struct gpuwm_client *client, const char *ref, const char *pin);
int gpuwm_unpin(struct gpuwm_client *client, const char *ref, const char *pin);
/* No new leases; freed when the last lease and pin are gone, for which wait_ms
 * waits: -ETIMEDOUT. -EBUSY: an alias names it. */
int gpuwm_retire(struct gpuwm_client *client, const char *ref, int64_t wait_ms);
/* The same, and leases that are left after_ms from now (0: at once; a month at most) are revoked, so that the version is
 * freed then, whatever their holders do. Its name is free then. What a holder still maps stays charged to the device until
 * the holder has detached or exited. -EBUSY: it has pins, or an alias names it; -EACCES: the user is no operator, and
 * `operate` of the model's section does not name it. */
int gpuwm_retire_by_force(struct gpuwm_client *client, const char *ref, uint64_t after_ms, int64_t wait_ms);
/* Removes a failed version from `list`. gpuwmd does so itself after failed_keep_s of its configuration (a day by default),
 * when the tag is loaded or published again, and when 64 others have failed after it. -EINVAL: the version did not fail, and
 * gpuwm_error()->detail says what frees it; -ENOENT; -EACCES. */
int gpuwm_remove(struct gpuwm_client *client, const char *ref);
enum gpuwm_kick_by {
	GPUWM_KICK_LEASE, /* the lease with this number */
	GPUWM_KICK_PID, /* all of this process, */
	GPUWM_KICK_UID, /* or of this user */
};
/* Revokes leases: their holders are told (gpuwm_lost), and don't get them again. *ret_json (may be NULL): the leases,
 * as JSON with the keys of docs/protocol.md; free() it. -ENOENT: there is no such lease; -EDQUOT: gpuwmd remembers no more single
 * leases of that user (GPUWM_KICK_UID has no such limit). */
int gpuwm_kick(struct gpuwm_client *client, enum gpuwm_kick_by by, uint64_t number, char **ret_json);
#define GPUWM_VERIFY_JOBS_MAX 64
/* Begins to read the memory of a ready or retiring version again, a job for each replica (device NULL), or for
 * those on a device: the numbers, for gpuwm_job_wait. A job fails with -EBADMSG where the memory is not
 * what was checked: the version is tainted then, which means no new leases (-EBADMSG) and an event `tainted`, for those
 * who have it. -ENOENT, -ENODEV; -EINVAL: not ready. */
int gpuwm_verify(struct gpuwm_client *client, const char *ref, const char *device,
		 uint64_t ret_jobs[GPUWM_VERIFY_JOBS_MAX], size_t *ret_count);
/* Lets everything go: see docs/protocol.md. */
int gpuwm_drain(struct gpuwm_client *client);
/* Frees the versions that were lost with a GPU: removes their aliases and revokes their leases. Leaves pinned versions, and
 * those of which other devices hold all ranks. -EINVAL: the GPU is not lost; -ENODEV: there is no such device. */
int gpuwm_drain_device(struct gpuwm_client *client, const char *device);
/* Makes gpuwmd read its configuration again. Returns 0 once the new one is in force. After an error the old one stays in
 * force, and the message names the file, the line and the error. -EINVAL: the new one is wrong, or changes what only a
 * restart can change; -ENOENT: there is no such file; -EMFILE: its limits need more open files than gpuwmd may have. Needs
 * GPUWM_CONNECT_ADMIN. */
int gpuwm_reload(struct gpuwm_client *client);

/* ---- looking ---------------------------------------------------------- */

/* The result of `list`, `status`, `clients`, `jobs`, `drain` or `reload` as JSON text, with the keys of
 * docs/protocol.md. filter: a model for `list`, a job's number for `jobs`; NULL: all.
 * free() the text. The filter of `drain` is a device that is lost. `drain` and `reload` need GPUWM_CONNECT_ADMIN; so do
 * `clients` and `jobs`, but for members of the observers'
 * group. `list` tells of the models that this user may attach to. */
int gpuwm_query(struct gpuwm_client *client, const char *method, const char *filter, char **ret_json);

/* ---- events ----------------------------------------------------------- */

struct gpuwm_event {
	uint64_t
		seq; /* goes up. Events of models that this user may not attach to leave gaps: a gap does not mean
			 that something is lost, "lost" does */
	const char *kind; /* docs/protocol.md; "lost": list again; "disconnected": the last one, its
			     seq that of the event before */
	const char *model, *tag, *alias; /* "" where the kind has none; valid in the callback */
	const char *version; /* 32 digits or ""; "" in an event "swapped" says that the alias was removed */
	const char *json; /* everything the event carries, as JSON */
};
typedef void gpuwm_event_fn(const struct gpuwm_event *event, void *user_data);

/* Subscribes on a connection of its own, to the same socket as the client's. after: the last seq that the
 * caller has seen; UINT64_MAX: from now on. It ends with the gpuwmd that it was opened with: open it again
 * after the seq of "disconnected" (numbers go up across restarts). That waits restart_ms for the next one. */
int gpuwm_events_open(struct gpuwm_client *client, uint64_t after, struct gpuwm_events **ret_events);
struct gpuwm_events *gpuwm_events_close(struct gpuwm_events *events);
/* For poll(2) or any event loop: the descriptor (owned by the events) and the
 * poll events to wait for. */
int gpuwm_events_get_fd(const struct gpuwm_events *events);
short gpuwm_events_get_events(const struct gpuwm_events *events);
/* Waits up to wait_ms for the first event, then calls fn for each that has
 * arrived. Their number; 0 when time ran out; -ECONNRESET after
 * "disconnected". Do not call it from fn, nor from two threads at once. */
int gpuwm_events_dispatch(struct gpuwm_events *events, int64_t wait_ms, gpuwm_event_fn *fn, void *user_data);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
