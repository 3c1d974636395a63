/* gpuwm: model weights that are loaded once and mapped by many.
 *
 * This is the public interface of libgpuwm-client, without regions, which gpuwm/region.h has. A
 * worker connects, attaches to a version and reads its tensors in place:
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
 * - Errors. A function that can fail returns 0 (or a count) on success and a negative errno on
 *   failure. It sets its `ret_` arguments on success only. After a failure gpuwm_error() says in
 *   words what happened. The library never prints and never exits. If gpuwmd refuses a request,
 *   the function returns the code of gpuwmd's answer: docs/protocol.md lists all of those codes.
 *   The contracts below name the codes that a caller may want to handle.
 * - Threads. Any thread may use a client and what was made from it. Calls on one client wait for
 *   each other; calls on different clients do not. Any number of threads may read a mapping's
 *   tensors at the same time, without a call of the library.
 * - fork. A child inherits mappings of host memory and may read them. In the child every call on
 *   a client, mapping or publish of the parent fails with -ECHILD. Nothing that the child does
 *   ends a lease of the parent: in the child gpuwm_drop and the deleters of exports have no
 *   effect. A child that needs gpuwmd connects again.
 * - Options. Every options struct begins with its size: initialise it with GPUWM_OPTIONS(type),
 *   or clear it with memset and set `size`. The library reads fields that the caller's older
 *   header lacks as zero. If the caller's header is newer, fields that this library does not know
 *   must be zero; otherwise the function fails with -EINVAL.
 * - CUDA. The library opens libcuda.so.1 when a GPU is asked for, and needs no driver for `host`.
 *   It leaves the caller's current context as it was.
 * - Signals. If a signal handler interrupts a system call (no SA_RESTART), the library repeats
 *   the system call. No function returns -EINTR.
 * - Waits are in milliseconds: 0 does not wait, -1 waits for ever. A wait bounds the whole call, a
 *   restart of gpuwmd included. If gpuwmd has not answered half a second after the end of the
 *   wait, or 30 seconds after a call that does not wait, the call fails with -ETIMEDOUT and the
 *   client connects again. While another thread's call uses the same client, the wait has not
 *   begun.
 * - Restarts. gpuwmd may crash or be upgraded. What is mapped stays mapped. The library connects
 *   again and takes every lease again, without telling the program. A thread of the library does
 *   that: it starts with the client's first lease, takes none of the program's signals, and ends
 *   with the client. The program learns only of versions that were lost, by
 *   gpuwm_connect_options.lost and gpuwm_mapping_check.
 * - Calls during a restart. A call waits up to restart_ms for the next gpuwmd. If none comes, the
 *   call fails with -ECONNREFUSED, and nothing was done. If gpuwmd went away after it received a
 *   request and before it answered, the library repeats the request where that is safe. It is not
 *   safe for swap, pin, unpin, load, retire, remove, kick, cancel, drain and publish_begin: these
 *   fail with -ECONNABORTED. Then the request was done or it was not: look, then repeat it. These
 *   calls also fail with -ECONNABORTED if this process lacks the memory or the descriptors to
 *   read the answer.
 * - Ownership. Each kind of object has its own function that frees it, and that function accepts
 *   NULL. Objects may be freed in any order: a mapping or publish keeps the connection that it
 *   needs.
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
struct gpuwm_mapping; /* a version that is mapped, under a lease */
struct gpuwm_handles; /* the descriptors of a version, under a lease */
struct gpuwm_publish; /* a version that this process makes */
struct gpuwm_events; /* a subscription to events */

/* Of DLPack: from gpuwm/dlpack.h, or from the header of any framework. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* Returns the version of the library that is running, such as "0.1.0". The text is static. */
const char *gpuwm_library_version(void);

/* ---- errors ----------------------------------------------------------- */

struct gpuwm_error {
	int code; /* a negative errno */
	const char *name; /* "ENOENT" */
	const char *message; /* what failed, on what, and why */
	const char *detail; /* the limit or the remedy; may be "" */
};
/* Returns the last error of this thread. The library owns it. It is valid until the next call that
 * this thread makes. */
const struct gpuwm_error *gpuwm_error(void);

/* ---- connecting ------------------------------------------------------- */

enum gpuwm_connect_flags {
	/* Connect to admin.sock, which takes the calls of operators. */
	GPUWM_CONNECT_ADMIN = 1,
	/* Use this one connection only, and no thread. When the connection ends, its leases end
	 * too, and every later call fails with -ECONNRESET. */
	GPUWM_CONNECT_ONCE = 2,
};

/* A lease that was lost with a restart of gpuwmd, or that an operator revoked. Its mapping stays
 * valid until gpuwm_detach: the library unmaps nothing by itself. gpuwmd counts the memory of a
 * revoked lease as used until the mapping is detached or the process has exited. So detach soon, or
 * leave the version by gpuwm_switch. */
struct gpuwm_lost {
	const char *version; /* 32 digits. All texts here are valid during the callback only. */
	const char *model, *tag, *device;
	uint32_t rank;
	/* Why the lease was lost. The codes:
	 *   -ENOENT           gpuwmd came back without the version.
	 *   -ESTALE           The version's memory was not kept, or an operator revoked the lease.
	 *   -EDQUOT           A limit of this user was reached.
	 *   -EPROTONOSUPPORT  The new gpuwmd speaks another protocol. The client can't be used any
	 *                     more. */
	struct gpuwm_error error;
	/* An operator revoked the lease (gpuwmctl kick, retire --force). The code is -ESTALE. */
	bool revoked;
};
/* The program's function for lost leases. A thread of the library calls it once for each lost
 * lease, after it has taken the other leases again. The function may make every call of the
 * library, also gpuwm_attach, gpuwm_detach and gpuwm_close.
 *
 * The library may call it for as long as the client has a mapping, even one that gpuwm_drop was
 * called for. A client with GPUWM_CONNECT_ONCE never calls it: use gpuwm_mapping_check there.
 *
 * Threads: when another thread makes the client's last gpuwm_close or gpuwm_detach, that call waits
 * until this function has returned. So this function must not wait for such a thread. */
typedef void gpuwm_lost_fn(const struct gpuwm_lost *lost, void *user_data);

struct gpuwm_connect_options {
	size_t size;
	/* The path of the workers' socket. NULL: $GPUWM_SOCKET. If that is not set, the first of
	 * these where somebody listens:
	 *   $XDG_RUNTIME_DIR/gpuwm/gpuwm.sock, if the variable names a folder of this user's, else
	 *       /run/user/UID/gpuwm/gpuwm.sock,
	 *   ~/.local/state/gpuwm/gpuwm.sock,
	 *   /run/gpuwm/gpuwm.sock, the system's.
	 * With GPUWM_CONNECT_ADMIN the client connects to admin.sock in the same directory instead.
	 * If `socket` is NULL, $GPUWM_ADMIN_SOCKET may name another path for that. The client finds
	 * a relative path again after a chdir, unless the absolute path is too long for a socket. */
	const char *socket;
	/* What `gpuwmctl clients` calls this client, in at most 128 bytes. NULL: the program's
	 * name. */
	const char *name;
	int64_t wait_ms; /* how long to try again while nobody listens */
	/* How long the whole call may take. 0: wait_ms; if that is 0 too, 30 seconds after somebody
	 * took the connection. */
	int64_t timeout_ms;
	unsigned flags; /* of enum gpuwm_connect_flags */
	/* How long a call waits for a gpuwmd that went away. 0: 30 seconds. -1: for ever. */
	int64_t restart_ms;
	gpuwm_lost_fn *lost; /* NULL: none. gpuwm_mapping_check still finds lost leases. */
	void *lost_data; /* passed to `lost` */
};

/* Connects to gpuwmd. options may be NULL.
 *
 * Returns 0 and sets *ret_client. The caller owns the client until gpuwm_close.
 *
 * Fails with
 *   -ECONNREFUSED, -ENOENT  Nobody listens at the socket.
 *   -EACCES                 The mode or group of the socket does not let this user in.
 *   -ETIMEDOUT              gpuwmd took the connection and did not answer. The message names its
 *                           process.
 *   -EPERM                  A process of another user than this one and root listens at a path of
 *                           this user's that neither `socket` nor GPUWM_SOCKET named.
 *   -EPROTONOSUPPORT        The library and gpuwmd have no protocol version in common. The message
 *                           names the versions of both.
 *   -EDQUOT                 There are too many sessions. */
int gpuwm_connect(const struct gpuwm_connect_options *options, struct gpuwm_client **ret_client);

/* Ends the caller's use of the client. The connection ends when the last mapping and the last
 * publish that were made from it are gone too. client may be NULL. Always returns NULL. */
struct gpuwm_client *gpuwm_close(struct gpuwm_client *client);

/* Makes one round trip to gpuwmd. Returns 0 and sets *ret_ns to the nanoseconds that it took.
 * ret_ns may be NULL. */
int gpuwm_ping(struct gpuwm_client *client, uint64_t *ret_ns);

/* Returns the path that the client connected to. The text is valid as long as the client. */
const char *gpuwm_socket_path(const struct gpuwm_client *client);

/* Returns the instance id (32 digits) of the gpuwmd that the client connected to last. Each start
 * of gpuwmd has another one. The text is valid as long as the client. */
const char *gpuwm_instance(const struct gpuwm_client *client);
/* Returns the id of gpuwmd's ledger, which stays for as long as gpuwmd's versions do, across
 * restarts. Returns "" if gpuwmd does not tell it. The text is valid as long as the client. */
const char *gpuwm_ledger(const struct gpuwm_client *client);
/* Returns how often gpuwmd was started with this ledger, from 1. Returns 0 if gpuwmd does not tell
 * it. */
uint64_t gpuwm_epoch(const struct gpuwm_client *client);

struct gpuwm_device {
	const char *id; /* "host" or "GPU-…". All texts here are valid as long as the client. */
	const char *name;
	bool is_cuda;
	uint64_t total, budget; /* bytes */
	uint64_t granularity; /* the size of each segment is a multiple of this */
	/* How the GPU was lost; it then takes no load and no publish. "": it was not lost. */
	const char *lost;
};

/* Sets *ret_devices to the devices that gpuwmd had when the client was made, `host` first. Returns
 * their number. The client owns the array. */
size_t gpuwm_devices(const struct gpuwm_client *client, const struct gpuwm_device **ret_devices);

/* ---- versions --------------------------------------------------------- */

struct gpuwm_version_info {
	char id[33]; /* 32 digits */
	char model[129];
	char tag[129];
	char device[64];
	uint32_t rank, world;
	/* How often the alias had moved by which the version was found. 0: it was not found by an
	 * alias. */
	uint64_t generation;
	uint64_t bytes; /* of all segments */
	uint32_t segments;
	uint64_t tensors;
	uint8_t layout[16], content[16]; /* digests */
};

/* The dtypes of safetensors, and from GPUWM_Q4_0 on those of GGUF that are in wide use. A version may have dtypes that a library
 * older than its publisher does not know: gpuwm_dtype_name returns NULL for these. */
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
	GPUWM_Q4_0,
	GPUWM_Q4_1,
	GPUWM_Q5_0,
	GPUWM_Q5_1,
	GPUWM_Q8_0,
	GPUWM_Q2_K,
	GPUWM_Q3_K,
	GPUWM_Q4_K,
	GPUWM_Q5_K,
	GPUWM_Q6_K,
};
/* Returns the name of a dtype as safetensors spells it, such as "BF16", or as GGUF does, such as "Q4_K". Returns NULL if there is no
 * dtype with this code. The text is static. */
const char *gpuwm_dtype_name(unsigned dtype);
/* Returns the bits of one element. Returns 0 for the dtypes of GGUF, whose elements share a block, and if there is no dtype with this
 * code. */
unsigned gpuwm_dtype_bits(unsigned dtype);
/* Sets *ret_elements and *ret_bytes to a dtype's block, the smallest number of elements that has whole bytes: BF16 has 2 bytes for 1
 * element, F4 1 byte for 2, Q4_K 144 bytes for 256. A dense tensor has elements / *ret_elements * *ret_bytes bytes. The elements of a
 * tensor are whole blocks. For the dtypes of GGUF, each of its rows is: the last dimension is a multiple of *ret_elements.
 *
 * Returns 0. Fails with -EINVAL if there is no dtype with this code. */
int gpuwm_dtype_block(unsigned dtype, uint32_t *ret_elements, uint32_t *ret_bytes);

/* ---- attaching -------------------------------------------------------- */

/* One field of a version's key. The key says what must be equal so that a worker can use the
 * version's bytes: the dtype, how it is quantised, the engine and its version, the number of ranks,
 * and so on. The publisher decides which fields there are, at most 64. The rules for names of
 * models hold for the name of a field. Its value is UTF-8 of at most 255 bytes. */
struct gpuwm_key_field {
	const char *name, *value;
};

/* How a version's memory comes to this process. */
enum gpuwm_transport {
	/* gpuwmd passes descriptors, and the library maps them read-only. All processes share the memory,
	 * and it outlives gpuwmd. */
	GPUWM_TRANSPORT_FD,
	/* As handles of legacy CUDA IPC, for programs that can't take descriptors. gpuwmd has a loader make
	 * a copy of the part in memory of cuMemAlloc, or takes the copy that this user has already. That
	 * loader, the copy's holder, stays while a process has a lease of the copy:
	 *   - The copy takes the part's bytes and a CUDA context of the GPU once more. They are charged to
	 *     the device's budget and to this user.
	 *   - The copy dies with its holder, and the holder ends with gpuwmd. Then the lease is lost
	 *     (-ESTALE): the library does not take it again. Attach again.
	 *   - A process that has opened the copy can also write into it. So each user has a copy of its own.
	 *   - gpuwm_attach opens it in the device's primary context, each segment at addresses of its own.
	 *     gpuwm_mapping_address is NULL. The options address, peers and look fail with -ENOTSUP, and so
	 *     do gpuwm_switch, gpuwm_exchange and gpuwm_claim.
	 *   - The call waits until the copy is made: up to wait_ms, or up to 30 seconds if that is 0. */
	GPUWM_TRANSPORT_CUDA_IPC,
};

struct gpuwm_attach_options {
	size_t size;
	/* "host" or the UUID of a GPU. NULL: the device that the version is on, if it is on one
	 * device only; else the device of the caller's current CUDA context. */
	const char *device;
	uint32_t rank;
	int64_t wait_ms; /* how long to wait for a version that is not there yet, or not ready */
	/* Where the mapping should begin, a multiple of 2 MiB. NULL: anywhere. The library takes
	 * other addresses if these are not free: compare with gpuwm_mapping_address. */
	void *address;
	/* On host: make every page present now, so that no read faults later. That takes about as
	 * long as reading one byte of each page. Fails with -ENOTSUP before Linux 5.14. A GPU's
	 * memory is always present. */
	bool populate;
	/* Further GPUs whose kernels are to read the memory over NVLink or PCIe, at the same
	 * addresses. Fails with -ENOTSUP if one of them can't reach the version's GPU. NULL:
	 * none. */
	const char *const *peers;
	size_t peer_count; /* at most 15 */
	/* Patterns of tensor names, such as "model.layers.3.*". The library maps only the segments
	 * that hold a tensor which a pattern matches. Tensors in other segments have the data NULL.
	 * As in Python's fnmatch, `*` and `?` match any characters, and there are no escapes. Fails
	 * with -ENOENT if a pattern matches no tensor. NULL: all segments. */
	const char *const *globs;
	size_t glob_count;
	/* On host: the process may write into the memory. A page that is written becomes a copy of
	 * this mapping's own. gpuwm_switch and gpuwm_exchange drop these copies. Other attachments
	 * do not share the mapping. Fails with -ENOTSUP on a GPU. */
	bool private_writes;
	/* For operators: attach also to a version that gives no leases, because it is tainted or
	 * retiring, to find out what is wrong with it. Fails with -EACCES without
	 * GPUWM_CONNECT_ADMIN. */
	bool look;
	/* What the version's key must have: each of these fields, with an equal value. gpuwm_switch
	 * asks the same of the next version, unless it gets a key of its own. If a field is missing
	 * or differs, the call fails with -EKEYREJECTED and names the field. NULL: any key. */
	const struct gpuwm_key_field *key;
	size_t key_count;
	/* Who must have made the version: one of these users or, with owner_operator, an operator.
	 * gpuwm_switch asks the same of the next version. So nobody can serve their own bytes by
	 * being the first to take a name. Otherwise the call fails with -EACCES, and the message
	 * says who made the version and whose was asked for. Without both options the owner does
	 * not matter. */
	const uint32_t *owner_uids;
	size_t owner_uid_count; /* at most 16 */
	bool owner_operator;
	/* Where this process serves requests: "host:port", "[IPv6]:port" or "unix:/path". The library
	 * announces it when the memory is mapped, as gpuwm_announce does: so listen there first.
	 * NULL: none. gpuwm_get_handles takes none (-EINVAL). */
	const char *announce;
	/* Fails with -ENOTSUP if the version can't be handed over so: it lies on host, the GPU or its driver
	 * has no legacy IPC, or gpuwmd is older. gpuwm never takes another transport instead. */
	enum gpuwm_transport transport;
	/* Bytes that this process takes on the version's device besides the version: caches, activations, the CUDA context. gpuwmd
	 * counts them as used while the mapping is awake, and makes room for them together with the version. It neither makes nor
	 * limits that memory. gpuwm_switch takes the room along. At most 2^50. gpuwm_get_handles with `look`, and other transports than descriptors, take none (-EINVAL). */
	uint64_t room;
};

/* Takes a lease on a version and maps the version, read-only. ref is "model", "model@tag",
 * "model@alias" or a version id. options may be NULL. The call costs one round trip and a few calls
 * of the driver, however many tensors there are. A write into the memory faults, unless
 * options.private_writes is set: on host with SIGSEGV, in a kernel as an illegal address.
 *
 * If this process attaches twice to the same version and rank on the same device, with the same
 * peers and segments, both attachments share one mapping: they have the same addresses, whatever
 * options.address says. Each of them has a lease.
 *
 * Returns 0 and sets *ret_mapping. The caller owns the mapping until gpuwm_detach or gpuwm_drop. On
 * host a mapping keeps a descriptor open for each segment. From its first lease on, a client keeps
 * one descriptor besides its socket, unless it has GPUWM_CONNECT_ONCE. A forked child has none of
 * these descriptors.
 *
 * Fails with
 *   -ENOENT           There is no such version, or gpuwmd's configuration does not let this user
 *                     attach to the model.
 *   -ENODEV           The version is not on the device, or it was lost with its GPU. The message
 *                     lists the devices that have it, or says how the GPU was lost.
 *   -ETIMEDOUT        The version was not ready within wait_ms.
 *   -EDQUOT           A limit of this user was reached.
 *   -ENOSPC           The device has no room for the version, or for options.room.
 *   -ESHUTDOWN        gpuwmd is draining.
 *   -EKEYREJECTED     The version has another key than options.key asks for.
 *   -EACCES           The version has another owner than the options ask for, or options.look is
 *                     set without GPUWM_CONNECT_ADMIN.
 *   -ENOTSUP          This process has no CUDA driver, or can't have what an option asks for.
 *   -EBADMSG          The version is tainted, or its index is damaged.
 *   -EAGAIN           The thread that takes leases again after a restart could not be made.
 *   -EMFILE, -ENFILE  There is no descriptor to wake that thread with.
 * With GPUWM_CONNECT_ONCE the client has no such thread and needs no such descriptor. */
int gpuwm_attach(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		 struct gpuwm_mapping **ret_mapping);

/* Announces where this process serves requests with the mapping's version: "host:port",
 * "[IPv6]:port" or "unix:/path", at most 128 bytes. gpuwmd tells it to observers and operators, such
 * as gpuwm-follow, which sends a load balancer's requests there. NULL: nowhere any more.
 *
 * The address stays with the mapping: gpuwm_switch and gpuwm_exchange move it to the new lease before
 * the old one ends, and after a restart of gpuwmd the library announces it again. It ends with the
 * lease. A process that is to exit without losing a request withdraws the address (NULL), serves on
 * until requests have ceased to come, and then detaches.
 *
 * Returns 0 when gpuwmd has the address. A second call replaces it.
 *
 * Fails with
 *   -EINVAL                 The text is no address.
 *   -EDQUOT                 64 leases of this client have an address.
 *   -ENOSYS                 gpuwmd is older than addresses.
 *   the code of gpuwm_lost  The lease was lost.
 *   -ECONNREFUSED           gpuwmd is away. The library announces the address when it is back.
 *   -ECONNRESET             With GPUWM_CONNECT_ONCE: the connection has ended. */
int gpuwm_announce(struct gpuwm_mapping *mapping, const char *address);

/* Ends a mapping. If no other attachment of this process shares the memory, the call waits until
 * the device is idle and unmaps the memory. Then it gives the lease back. mapping may be NULL.
 *
 * Returns 0. While gpuwmd is away it does so without a wait: the lease ended with the connection,
 * and the library does not take it again. The mapping is freed, and the pointers of its tensors
 * must not be used any more.
 *
 * Fails with
 *   -EIO     The memory is unmapped and the mapping is freed, but gpuwmd did not know the lease.
 *   -EBUSY   Exports or holds of the mapping are alive, and the message says how many; or a CUDA
 *            stream is being captured. Nothing was done.
 *   -ECHILD  Nothing was done. */
int gpuwm_detach(struct gpuwm_mapping *mapping);

/* Gives a mapping up. The call returns at once and can't fail. A thread of the library later does
 * what gpuwm_detach does: after the last export and hold of the mapping has ended, when the device
 * is idle and no CUDA stream is being captured. The lease goes on until the memory is unmapped.
 * mapping may be NULL, and must not be used afterwards.
 *
 * Work that still reads the memory must be queued in the device's primary context, as frameworks
 * do: the thread waits for no other context. If the thread can't be made, the memory stays mapped
 * until a later call makes it. The library does nothing when the process exits: the kernel reclaims
 * everything. In a forked child the call does nothing. */
void gpuwm_drop(struct gpuwm_mapping *mapping);

/* Tells whether the mapping still has its lease and its memory.
 *
 * Returns 0 while the lease is held, and while the library will take it again.
 *
 * Fails with
 *   the code of gpuwm_lost   The lease was lost. -ESTALE: perhaps an operator revoked it, see
 *                            gpuwm_mapping_revoked.
 *   -ECONNRESET              With GPUWM_CONNECT_ONCE: the connection has ended.
 *   -ENOTRECOVERABLE         gpuwm_switch or gpuwm_exchange lost the memory. */
int gpuwm_mapping_check(const struct gpuwm_mapping *mapping);
/* Returns whether the lease was revoked: by an operator, or because its copy is gone
 * (GPUWM_TRANSPORT_CUDA_IPC). The library never takes such a lease again. The
 * memory stays mapped until gpuwm_detach, or until gpuwm_switch puts another version there under a
 * new lease. Then the library tells gpuwmd that the memory is unmapped. With GPUWM_CONNECT_ONCE
 * call gpuwm_mapping_check first: only that call learns of it. Returns false in a forked child. */
bool gpuwm_mapping_revoked(const struct gpuwm_mapping *mapping);

/* Returns the version that is mapped. The mapping owns the struct, which is valid until
 * gpuwm_detach. gpuwm_switch and gpuwm_exchange change its content. */
const struct gpuwm_version_info *gpuwm_mapping_version(const struct gpuwm_mapping *mapping);

/* Returns the first address of the range that holds all segments. Sets *ret_bytes to the size of
 * the range; ret_bytes may be NULL. Returns NULL if there are no segments. If several processes ask
 * for the same address in options.address, and get it, their pointers are the same. */
const void *gpuwm_mapping_address(const struct gpuwm_mapping *mapping, uint64_t *ret_bytes);

struct gpuwm_switch_options {
	size_t size;
	int64_t wait_ms; /* how long to wait for a version that is not there yet, or not ready */
	/* The caller has waited for the device and captures nothing: do not wait again. */
	bool idle;
	/* What the new version's key must have, in place of what gpuwm_attach or
	 * gpuwm_publish_begin got: for example fewer fields, if the key also says which checkpoint
	 * the version is. Only this switch asks for these fields; later switches need them in their
	 * own options. If a field is missing or differs, the call fails with -EKEYREJECTED. NULL:
	 * as when the version was attached. Not NULL with a key_count of 0: any key. */
	const struct gpuwm_key_field *key;
	size_t key_count;
};

/* Puts another version of the same layout where the mapping's version is: at the same addresses, on
 * the same device, of the same rank. Every data pointer, shape and stride stays true. So do CUDA
 * graphs that were captured with them: what runs afterwards reads the new bytes. options may be
 * NULL.
 *
 * Call it at a quiet point of the program: while the call runs, no thread may use the mapping or
 * queue work that reads it. The call waits until the device is idle. Then it unmaps the old
 * version, maps the new one and exchanges the leases. On host each segment changes in one step.
 *
 * Afterwards gpuwm_mapping_version, metadata, files and digests are those of the new version.
 * Pointers to texts that were told before (names, shapes, strides, files) are invalid: look them up
 * again. The caller renews what it made from the old bytes itself: copies, caches, merged adapters,
 * and on host the presence of pages.
 *
 * Returns 0. If the mapping already has that version, the call only replaces the lease, and so
 * heals a lease that was lost. Of the two keys it then compares only the one in the options.
 *
 * Fails with the codes of gpuwm_attach and those below. The mapping keeps its version and its
 * lease, except after -ENOTRECOVERABLE.
 *   -ENOENT           There is no such version. If an operator has removed the alias that the
 *                     worker follows, call again at the next event "swapped".
 *   -EKEYREJECTED     The version has another key than the options ask for, or gpuwm_attach asked
 *                     for.
 *   -EXDEV            The version has another layout. The message says the first difference.
 *                     Detach, and attach to the version anew.
 *   -EBUSY            Another attachment of this process shares the mapping; detach it first. Or a
 *                     CUDA stream is being captured.
 *   -EIO              The CUDA context is broken, or the driver refused.
 *   -ECHILD
 *   -ENOTRECOVERABLE  The library could map neither the new version nor the old one again. The
 *                     memory is unmapped. No pointer into it may be used until another gpuwm_switch
 *                     succeeds. If none does, detach. */
int gpuwm_switch(struct gpuwm_mapping *mapping, const char *ref, const struct gpuwm_switch_options *options);

/* Gives the memory of a mapping back, and keeps its addresses. The version may then leave the device: when something
 * else needs room there, or by an operator's word. It is not freed. Exports, holds, pointers and CUDA graphs stay,
 * and are true again after gpuwm_unpark; until then no kernel and no thread may read there. On host a read is a SIGSEGV,
 * which the library explains if gpuwm_name_faults was called. An announced address takes no requests meanwhile. Other attachments
 * of this process to the same version may share the memory: it goes when the last of them has parked.
 *
 * room: the bytes of the mapping's room (gpuwm_attach_options) that the process keeps on the device while it is parked; the rest is for
 * others. The process has freed them before the call.
 *
 * The call waits until the device is idle. If gpuwmd is away, the next one hears that the lease is parked. A mapping
 * that is parked already is fine. gpuwm_tensor_at, exports, gpuwm_switch and gpuwm_exchange of a parked mapping fail with -ENODATA;
 * gpuwm_detach and gpuwm_drop end it.
 *
 * Returns 0. Fails with the codes below, and with those of gpuwm_lost; the mapping is as before then.
 *   -EBUSY    A CUDA stream is being captured.
 *   -EINVAL   The version does not move: it has no name, or is cached. Or `room` is more than the mapping has.
 *   -ENOTSUP  The mapping has private_writes, or comes by CUDA IPC, or no other process has its memory. Or gpuwmd is older.
 *   -EIO      The CUDA context is broken, or the driver refused.
 *   -ECHILD */
int gpuwm_park(struct gpuwm_mapping *mapping, uint64_t room);
/* Maps the memory of a parked mapping again, at the same addresses. If the version has left its device, gpuwmd brings it back, and
 * the call waits for that: wait_ms, 0: not at all, -1: for ever.
 *
 * room: the bytes that the process is going to take there besides, once the call has returned; GPUWM_ROOM_AS_BEFORE: as many as when
 * it was awake last. gpuwmd grants the version and the room together, or neither. Mappings of all processes wait in turn. A mapping that is not parked gets the other room, or
 * keeps the one it has if the call fails.
 *
 * Returns 0. Fails with the codes below; the mapping stays parked then, and the call may be repeated.
 *   -ETIMEDOUT  The version is not back yet, or its room is not there yet.
 *   -ENOENT     The version was retired after it had left its device.
 *   -EBADMSG, -ENODEV  The version is tainted, or its device is lost.
 *   -ENOSPC, -EDQUOT  The device has no room, and the call does not wait, or the device is too small; or a quota is used up.
 *   -ENOMEM, -EIO, -ECHILD, and the codes of gpuwm_lost */
int gpuwm_unpark(struct gpuwm_mapping *mapping, uint64_t room, int64_t wait_ms);
#define GPUWM_ROOM_AS_BEFORE UINT64_MAX
/* Does what gpuwm_unpark does, for one of several mappings that are of use only together: those of the ranks of one engine, each with a
 * device of its own. Every one of them makes this call, in its own process, with the same name and the same number of mappings. gpuwmd grants
 * nothing to any of them before all have asked, and then everything to all of them at once. Else the ranks of two engines could wait for
 * each other. If one of them fails, all calls fail with its error.
 *
 * group: 1 to 128 bytes, of the user's own choice; other users' groups are other ones. mappings: at most 256. The names of two
 * engines must differ. A mapping that is awake already asks again for its room, and counts.
 *
 * Returns 0. Fails as gpuwm_unpark; with -ENOSPC also if others have not asked, and the call does not wait; with -EINVAL. A process that
 * has failed parks its mapping, so that the others' next try begins anew. */
int gpuwm_unpark_together(struct gpuwm_mapping *mapping, const char *group, uint32_t mappings, uint64_t room,
			  int64_t wait_ms);
/* Returns whether the mapping is parked. */
bool gpuwm_mapping_parked(const struct gpuwm_mapping *mapping);
/* Returns the bytes of room that gpuwmd counts for the mapping now. */
uint64_t gpuwm_mapping_room(const struct gpuwm_mapping *mapping);

struct gpuwm_exchange_options {
	size_t size;
	/* The caller has waited for the device and captures nothing: do not wait again. */
	bool idle;
	/* Compare only: the call fails if an exchange would, but it asks the device nothing and
	 * changes nothing. */
	bool check;
};

/* Puts the version of `other` where `mapping` is, and the version of `mapping` where `other` is.
 * Both must have the same layout, device, rank, segments and peers. The call does not need gpuwmd,
 * so it can't fail because gpuwmd is away. An engine of several ranks can attach every rank to the
 * next version first, then exchange all of them, and go back by the same call. options may be NULL.
 *
 * The rules of gpuwm_switch hold for both mappings: when to call it, and which pointers stay true.
 * Pointers, CUDA graphs, exports and holds stay with the addresses. Versions with their texts
 * change sides, and so do leases (lost ones too) and the clients that hold them. The keys and
 * owners that gpuwm_attach got stay with each mapping for its next gpuwm_switch; this call compares
 * neither. Afterwards gpuwm_detach of `other` gives back the lease on the version that `mapping`
 * had. Room (gpuwm_attach_options) goes with the lease: gpuwm_unpark sets that of a mapping anew.
 *
 * Returns 0. If both mappings have the same version, the memory stays as it is.
 *
 * Fails with the codes below. Nothing changes, except after -ENOTRECOVERABLE.
 *   -EXDEV            The layouts differ, and the message says the first difference; or the device,
 *                     rank, segments or peers differ.
 *   -EINVAL           Both are the same mapping, or only one of them has private_writes.
 *   -EBUSY            Another attachment of this process shares one of the two, which the message
 *                     names. Or a CUDA stream is being captured.
 *   -EIO              The CUDA context is broken, or the driver refused.
 *   -ECHILD
 *   -ENOTRECOVERABLE  The library could not map the memory of one mapping or of both again; the
 *                     message names them. No pointer into that memory may be used until another
 *                     gpuwm_switch or gpuwm_exchange succeeds. */
int gpuwm_exchange(struct gpuwm_mapping *mapping, struct gpuwm_mapping *other,
		   const struct gpuwm_exchange_options *options);

struct gpuwm_tensor {
	/* The name, and the arrays `shape` and `strides`, are valid until gpuwm_detach,
	 * gpuwm_switch or gpuwm_exchange. */
	const char *name;
	enum gpuwm_dtype dtype;
	uint32_t ndim;
	const uint64_t *shape; /* ndim entries */
	const int64_t *strides; /* ndim entries, in elements */
	/* Host memory, or a device pointer of the version's GPU. Valid until gpuwm_detach. NULL:
	 * the tensor is not mapped, see gpuwm_attach_options.globs. */
	const void *data;
	uint64_t bytes;
	uint32_t segment; /* the position of its segment */
	uint64_t offset; /* in the segment, in bytes */
	uint8_t digest[16];
};

/* Returns the number of tensors. They are in the order of their names, byte by byte. */
uint64_t gpuwm_tensor_count(const struct gpuwm_mapping *mapping);
/* Sets *ret_tensor to the tensor at `position`. Returns 0. Fails with -ERANGE if there is none,
 * with -ECHILD, and with -ENOTRECOVERABLE. */
int gpuwm_tensor_at(const struct gpuwm_mapping *mapping, uint64_t position, struct gpuwm_tensor *ret_tensor);
/* Sets ret_tensors, an array of gpuwm_tensor_count entries that the caller owns, to all tensors.
 * Returns 0. Fails with -ECHILD, and with -ENOTRECOVERABLE. */
int gpuwm_tensors(const struct gpuwm_mapping *mapping, struct gpuwm_tensor *ret_tensors);
/* Sets *ret_tensor to the tensor with this name, in O(log n). Returns 0. Fails with -ENOENT if
 * there is none, with -ECHILD, and with -ENOTRECOVERABLE. */
int gpuwm_tensor_find(const struct gpuwm_mapping *mapping, const char *name, struct gpuwm_tensor *ret_tensor);

/* The publisher can give a version texts of any kind (metadata) and small files. What the next four
 * functions return belongs to the mapping and is valid until gpuwm_detach, gpuwm_switch or
 * gpuwm_exchange. */

/* Returns the text with this key, or NULL if there is none. */
const char *gpuwm_metadata(const struct gpuwm_mapping *mapping, const char *key);
/* Sets *ret_key and *ret_value to the text at `position`, from 0. Returns 0. Fails with -ERANGE if
 * there is none, and with -ECHILD. */
int gpuwm_metadata_at(const struct gpuwm_mapping *mapping, uint32_t position, const char **ret_key,
		      const char **ret_value);
/* Returns the content of the small file with this name, such as "config.json", and sets *ret_bytes
 * to its size. Returns NULL if there is none. A file of a subfolder has '/' in its name. The publisher
 * can choose any name: before you write such a file into a folder, look for empty parts and "..". */
const void *gpuwm_file(const struct gpuwm_mapping *mapping, const char *name, uint32_t *ret_bytes);
/* Sets the three results to the file at `position`, from 0. Returns 0. Fails with -ERANGE if there
 * is none, and with -ECHILD. */
int gpuwm_file_at(const struct gpuwm_mapping *mapping, uint32_t position, const char **ret_name,
		  const void **ret_data, uint32_t *ret_bytes);

/* Copies `bytes` bytes of a tensor, from `offset` on, to host memory. It is meant for tools and
 * tests. It returns when the copy is done. On a GPU the first call makes the device's context,
 * which is kept until gpuwm_detach.
 *
 * Returns 0. Fails with -ERANGE if the tensor does not have these bytes, with -ENODATA if the
 * tensor is not mapped, with -ECHILD, and with -ENOTRECOVERABLE. */
int gpuwm_tensor_read(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, uint64_t offset,
		      void *buffer, uint64_t bytes);

/* Reads tensors again through this mapping and compares them with the digests that the version got
 * when it was made. So it tells whether this process reads what every other process does. names has
 * `count` names; NULL: all tensors that are mapped. On a GPU the call waits for what was queued
 * before, then a kernel reads the memory at its full speed, in the context that gpuwm_tensor_read
 * makes.
 *
 * Returns 0 if all are equal.
 *
 * Fails with
 *   -EBADMSG          A tensor differs. The message names the first one, and both digests.
 *   -ENOENT           There is no tensor with one of the names. Nothing was read.
 *   -ENODATA          One of the tensors is not mapped. Nothing was read.
 *   -EBUSY            A CUDA stream is being captured.
 *   -EIO, -ENOMEM, -ECHILD, -ENOTRECOVERABLE */
int gpuwm_tensors_verify(const struct gpuwm_mapping *mapping, const char *const *names, size_t count);

/* gpuwm_save calls it in the thread of the caller, when it has written `bytes` more of `total` bytes.
 * If it returns nonzero, the save ends with -ECANCELED. */
typedef int gpuwm_save_progress_fn(uint64_t bytes, uint64_t total, void *user_data);

struct gpuwm_save_options {
	size_t size;
	bool overwrite; /* files with the same names are replaced, unless another version comes back from them */
	uint64_t shard_bytes; /* the largest file, unless one tensor is larger; 0: 5 GB */
	gpuwm_save_progress_fn *progress; /* NULL: none */
	void *user_data; /* for progress */
};

/* Saves a version as safetensors files in a folder, which the call makes if it does not exist.
 * mappings has `count` entries, one of each rank of the version in the order of the ranks, without globs. The
 * files of a version with one rank are model.safetensors, or shards with
 * model.safetensors.index.json; with several ranks they are model-rank-RANK-part-PART.safetensors.
 * The version's other files go beside them, with their subfolders, except those whose names have an empty
 * part or one that begins with a dot, or end as model files do. A tensor is written in the order of its rows, whatever its strides are,
 * so that every reader of safetensors gets its values. Tied tensors are written once each.
 *
 * The files have temporary names until all of them are complete and on the disk. options may be
 * NULL. Returns 0.
 *
 * Fails with
 *   -EINVAL     The mappings are not all ranks of one version.
 *   -EEXIST     The folder has a file of one of these names, and `overwrite` is false; or it has other
 *               model files; or another version that the caller sees has its source there, so that
 *               it could not come back.
 *   -EBUSY      Another save of this user writes into the folder.
 *   -ESTALE     Another process has replaced a file while the call wrote it.
 *   -EPERM      The file system makes the files another user's.
 *   -ENOSPC     The disk is full.
 *   -EBADMSG    A tensor differs from the digest that the version got when it was made.
 *   -ENODATA    A tensor is not mapped.
 *   -ENOTSUP    A tensor has the name __metadata__, or a dtype of GGUF, which safetensors files can't have.
 *   -ECANCELED  `progress` returned nonzero.
 *   -EACCES, -ENOENT, -EIO, -ENOMEM, -ECHILD, -ENOTRECOVERABLE
 * If the call fails, it removes the files that it made. With `overwrite`, files that it has replaced
 * already stay replaced: it gives files their names when everything else is done. */
int gpuwm_save(const struct gpuwm_mapping *const *mappings, size_t count, const char *folder,
	       const struct gpuwm_save_options *options);

/* ---- for other frameworks --------------------------------------------- */

/* Makes a DLPack export of a tensor. Its data is the tensor's own address (NULL if the tensor has
 * no bytes), its byte_offset is 0, it always has strides, and its device_id is this process's
 * number of the GPU. Shape and strides belong to the export, so they outlive gpuwm_switch. Nothing
 * may write into the tensor, unless the version was attached with private_writes.
 *
 * Returns 0 and sets *ret. Returns 1 if the export shows the tensor's bytes as uint8, because
 * consumers of this struct lack the tensor's own dtype. The consumer then views the bytes as that
 * dtype:
 *   F8_*           The export has the same shape and strides.
 *   F4, F6_*       The last dimension counts bytes. If the rows are not whole bytes, the export has
 *                  one dimension with all of the tensor's bytes.
 * The dtypes of GGUF (Q4_K, …) have no export: their bytes are at the tensor's data.
 *
 * Whoever has the export owns it and calls its deleter once. Until then the memory stays mapped and
 * its lease goes on, even after gpuwm_drop. A deleter only counts. So it may be called by any
 * thread, under any lock, during a stream capture and during exit. In a forked child it has no
 * effect.
 *
 * Fails with
 *   -ERANGE     The mapping has no such tensor.
 *   -ENODATA    The tensor is not mapped.
 *   -ENOTSUP    The dtype is one of GGUF's, or one that this library does not know.
 *   -EOVERFLOW  The tensor is empty, and one of its dimensions is above 2^63 - 1.
 *   -EAGAIN     The thread of gpuwm_drop could not be made.
 *   -ECHILD, -ENOTRECOVERABLE, -ENOMEM */
int gpuwm_dlpack(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor,
		 struct DLManagedTensor **ret);
/* Does the same for the tensors at `count` positions, for all of them or for none. ret is the
 * caller's array of `count` entries. Returns 0, also if some of the exports show bytes as uint8.
 * Fails with the codes of gpuwm_dlpack. */
int gpuwm_dlpack_many(struct gpuwm_mapping *mapping, const uint64_t *positions, size_t count,
		      struct DLManagedTensor **ret);
/* Does the same as gpuwm_dlpack with the struct of DLPack 1.0, whose flags say that the tensor is
 * read-only. Use it only for a consumer that asks for DLPack 1.0 or later. F8_* have their own type
 * codes, those of DLPack 1.1, and so has F4 if its rows are whole bytes: an element of the export is
 * a pair, with 4 bits and 2 lanes. The call returns 0 for them, and 1 for F6_* and other tensors of
 * F4. */
int gpuwm_dlpack_versioned(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor,
			   struct DLManagedTensorVersioned **ret);
/* A destructor for Python's capsules "dltensor" and "dltensor_versioned" that hold an export. If
 * nobody consumed the capsule, it calls the export's deleter. The library does not link to Python:
 * it finds the functions for capsules in the process. */
void gpuwm_dlpack_capsule_end(void *capsule);

/* Holds the mapping as an export does, for objects of other kinds, such as an array or a view of
 * the memory. Returns 0. Each hold needs one gpuwm_unhold. Fails with -ECHILD, and with -EAGAIN as
 * gpuwm_dlpack does. */
int gpuwm_hold(struct gpuwm_mapping *mapping);
/* Gives a hold back. The rules for an export's deleter hold for this call. */
void gpuwm_unhold(struct gpuwm_mapping *mapping);
/* Returns the number of exports and holds of the mapping that are alive. */
uint64_t gpuwm_mapping_exports(const struct gpuwm_mapping *mapping);

/* Tell the library that a capture of a CUDA stream begins, and that it has ended. Call the first
 * before each capture and the second after it. Captures may overlap, also in several threads. If a
 * thread of the library is unmapping memory, gpuwm_capture_begin waits until it has finished.
 *
 * Why: CUDA makes a capture invalid when any thread waits for its context, without a warning.
 * Between the two calls the library waits for no context:
 *   - memory that gpuwm_drop is to unmap stays mapped until the capture has ended;
 *   - gpuwm_detach, gpuwm_switch, gpuwm_exchange, gpuwm_tensors_verify, gpuwm_vacate, gpuwm_occupy,
 *     gpuwm_reservation_free, gpuwm_publish_commit and gpuwm_publish_commit_attached fail with
 *     -EBUSY.
 *
 * A program that does not make these calls risks its captures. The library then recognises a
 * capture only on a stream that synchronises with the default stream (one made without
 * CU_STREAM_NON_BLOCKING). A capture on any other stream becomes invalid when one of the functions
 * above waits for its context. The same happens when the last export or hold of a mapping ends
 * after gpuwm_drop, since the library's thread then waits for the context. */
void gpuwm_capture_begin(void);
void gpuwm_capture_end(void);

/* ---- addresses whose memory comes later -------------------------------- */

struct gpuwm_reservation;

/* Reserves addresses for at least `bytes` on a device ("host" or the UUID of a GPU). One small
 * block of memory, at most 64 MiB, is mapped at all of these addresses again and again: what is
 * written at one address is read at others too. So a standby engine can reserve the addresses of a
 * KV cache, run kernels on them and capture CUDA graphs while another engine has the memory. Later
 * gpuwm_occupy puts memory of its own at the same addresses. The call does not need gpuwmd.
 *
 * Returns 0 and sets *ret_reservation. The caller owns it until gpuwm_reservation_free.
 *
 * Fails with
 *   -EINVAL            `device` is not a device, or `bytes` is 0 or too large.
 *   -ENODEV, -ENOTSUP  This process can't use the device.
 *   -ENOSPC            The device has no room for the block.
 *   -ENOMEM, -EMFILE, -EIO
 *
 * Threads: only one thread at a time may make calls on a reservation. */
int gpuwm_reserve(const char *device, uint64_t bytes, struct gpuwm_reservation **ret_reservation);
/* Returns the first address (a device pointer on a GPU), a multiple of 2 MiB. Sets *ret_bytes to
 * the size of the range, which is `bytes` rounded up to whole blocks. ret_bytes may be NULL. */
void *gpuwm_reservation_address(const struct gpuwm_reservation *reservation, uint64_t *ret_bytes);
/* Waits until the device is idle, then gives the block's memory back. From now on nothing may use
 * the addresses until gpuwm_occupy has returned 0. Call it after warming up and capturing:
 * gpuwm_occupy then has less to do. On host the block's memory goes back only when other memory
 * takes its place, or with gpuwm_reservation_free.
 *
 * Returns 0, also if the block is gone already. Fails with -EBUSY if a CUDA stream is being
 * captured, with -EIO, and with -ECHILD. After a failure the block is there as before. */
int gpuwm_vacate(struct gpuwm_reservation *reservation);
/* Puts memory behind all of the addresses, filled with zeros. If the block is still there, the call
 * vacates it first, and what the block held is gone. The call takes memory piece by piece. While
 * the device has too little, it tries again for wait_ms (-1: for ever): the memory of a process
 * that was killed comes back within some hundred milliseconds. While the call runs, nothing may use
 * the addresses.
 *
 * Returns 0, also if the memory is there already.
 *
 * Fails with the codes of gpuwm_vacate, and with those below. After those below no memory is taken
 * (on host it goes back as with gpuwm_vacate), and the call may be repeated.
 *   -ENOSPC                 The device has too little memory. The message says how much is missing.
 *   -ENOMEM, -EMFILE, -EIO */
int gpuwm_occupy(struct gpuwm_reservation *reservation, int64_t wait_ms);
/* Waits until the device is idle, unmaps the memory, and gives the addresses up. reservation may be
 * NULL.
 *
 * Returns 0 and frees the reservation. Fails with -EBUSY if a CUDA stream is being captured, and
 * with -ECHILD. Then nothing was done. */
int gpuwm_reservation_free(struct gpuwm_reservation *reservation);

/* ---- faults ------------------------------------------------------------ */

/* Installs a handler for SIGSEGV, once for the process. No other function of the library installs
 * one.
 *
 * If a thread writes into a tensor on host that the library mapped read-only, the handler writes
 * one line to standard error, with the names of the tensor and the version. Then it restores the
 * handler that was there before (or the default) and returns. The thread repeats its write, and the
 * process ends as it would have without this function: it dumps core, or its own handler prints a
 * backtrace. The handler passes every other SIGSEGV on to the one that was there before. A handler
 * that the program installs later replaces this one, unless the later one calls it.
 *
 * The line ends with what helps: "write into a copy, or attach with " and `private_writes`, how this
 * program asks for private writes; a language's binding says it in its own words. The text is copied,
 * up to 79 bytes. NULL: "private_writes". Later calls change nothing.
 *
 * The handler calls only async-signal-safe functions. A write by a GPU's kernel raises no signal:
 * CUDA ends the context, and the next calls return CUDA_ERROR_ILLEGAL_ADDRESS without an
 * address. */
void gpuwm_name_faults(const char *private_writes);

/* ---- raw handles: for programs that map the memory themselves ---------- */

/* Takes a lease on a version and gets its descriptors. It maps nothing but the index.
 *
 * Returns 0 and sets *ret_handles. The caller owns the handles until gpuwm_handles_release. Fails
 * with the codes of gpuwm_attach. */
int gpuwm_get_handles(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		      struct gpuwm_handles **ret_handles);
/* Closes all descriptors of the handles, frees the handles, and gives the lease back. handles may
 * be NULL.
 *
 * Returns 0.
 *
 * Fails with
 *   -EIO     The handles are freed, but gpuwmd did not know the lease.
 *   -ECHILD  Nothing was done. */
int gpuwm_handles_release(struct gpuwm_handles *handles);
/* Tells whether the lease is held. Returns 0, and fails with the codes of gpuwm_mapping_check. */
int gpuwm_handles_check(const struct gpuwm_handles *handles);
/* Returns the version. The handles own the struct. */
const struct gpuwm_version_info *gpuwm_handles_version(const struct gpuwm_handles *handles);
/* Returns the descriptor of the segment at `position`, and sets *ret_bytes to its exact size.
 * ret_bytes may be NULL. The descriptor is close-on-exec and belongs to the handles: to keep it,
 * dup it. Fails with -ERANGE if there is no such segment, and with -ECHILD. */
int gpuwm_handles_segment(const struct gpuwm_handles *handles, uint32_t position, uint64_t *ret_bytes);
/* Does the same for the index. docs/protocol.md describes its format. */
int gpuwm_handles_index(const struct gpuwm_handles *handles, uint64_t *ret_bytes);
/* The size of a cudaIpcMemHandle_t and of a cudaIpcEventHandle_t. */
#define GPUWM_IPC_HANDLE_BYTES 64
/* With GPUWM_TRANSPORT_CUDA_IPC, handles are bytes instead of descriptors. Processes on this host that see the GPU can open them as
 * long as these handles live, so the caller may pass them on. gpuwm_handles_tensor_at tells the segment and offset of each
 * tensor.
 *
 * Sets ret_handle to the CUipcMemHandle of the segment at `position` and, unless it is NULL, *ret_bytes to its size. The memory
 * begins at the address that cuIpcOpenMemHandle returns. Returns 0. Fails with -ERANGE if there is no such segment, with -ENOTSUP
 * if the handles are descriptors, and with -ECHILD. */
int gpuwm_handles_ipc_segment(const struct gpuwm_handles *handles, uint32_t position,
			      unsigned char ret_handle[GPUWM_IPC_HANDLE_BYTES], uint64_t *ret_bytes);
/* Sets ret_handle to the CUipcEventHandle of an event that the holder recorded behind the copying and, unless it is NULL,
 * *ret_holder to the pid of the holder, as it is in gpuwm-loader's PID namespace. The copy is complete, so nobody needs to wait for
 * the event: it is for programs whose interface wants one. The driver opens it only for processes of the holder's user
 * (gpuwm-loader's), the memory for all. Returns 0. Fails with -ENOTSUP and -ECHILD as above. */
int gpuwm_handles_ipc_event(const struct gpuwm_handles *handles,
			    unsigned char ret_handle[GPUWM_IPC_HANDLE_BYTES], uint64_t *ret_holder);
/* Returns the number of tensors. */
uint64_t gpuwm_handles_tensor_count(const struct gpuwm_handles *handles);
/* Sets *ret_tensor to the tensor at `position`, with data NULL. Its texts are valid until
 * gpuwm_handles_release. Returns 0. Fails with -ERANGE if there is none, and with -ECHILD. */
int gpuwm_handles_tensor_at(const struct gpuwm_handles *handles, uint64_t position,
			    struct gpuwm_tensor *ret_tensor);
/* The same as gpuwm_metadata_at and gpuwm_file_at, for handles. The results are valid until
 * gpuwm_handles_release. */
int gpuwm_handles_metadata_at(const struct gpuwm_handles *handles, uint32_t position, const char **ret_key,
			      const char **ret_value);
int gpuwm_handles_file_at(const struct gpuwm_handles *handles, uint32_t position, const char **ret_name,
			  const void **ret_data, uint32_t *ret_bytes);

/* ---- publishing ------------------------------------------------------- */

struct gpuwm_tensor_spec {
	const char *name;
	enum gpuwm_dtype dtype;
	uint32_t ndim;
	const uint64_t *shape;
	/* In elements. The tensor must be dense, with its dimensions in any order; if elements share bytes (F4,
	 * Q4_K), with the last dimension fastest. NULL: dense, the last dimension fastest. */
	const int64_t *strides;
	/* The name of another spec, of the same dtype and bytes, whose memory this tensor shares.
	 * NULL: it has its own. Files know no such ties: in safetensors two tensors never share
	 * bytes. */
	const char *tied_to;
};

/* Attaches to a version, or elects this client to build it. Of all clients that claim a name at
 * once, one is elected. The others wait for what it builds. options may be NULL.
 *
 * Returns 0 and sets *ret_mapping if the version is attached, as gpuwm_attach does. options.wait_ms
 * is how long the call waits for the builder, also for one that builds without a claim.
 *
 * Returns 1 if this client is elected. *ret_mapping is not set. The client then does one of these:
 *   - It calls gpuwm_publish_begin with this name. The publish takes the claim over. When it is
 *     committed, those who wait are attached.
 *   - It calls gpuwm_claim_give_up.
 * If it does neither, if the publish fails or is aborted, if the process dies or if the client is
 * closed, the next one of those who wait is elected. Until then gpuwm_publish_begin of the name
 * fails with -EBUSY for everybody else.
 *
 * If gpuwmd restarts, the elected client keeps its claim: the name stays reserved for its user for
 * grace_ms of gpuwmd's configuration (10 s by default). But a restart ends a publish that is not
 * committed (see gpuwm_publish_commit), and the claim that it took over: claim again.
 *
 * If several ranks make one version, only one process may claim it. That process tells the others
 * the result: they join its publish (gpuwm_publish_options.join), or each attaches its rank to the
 * version by the version's id. If each rank claimed by itself, ranks of different groups could wait
 * for each other.
 *
 * Fails with the codes of gpuwm_attach, and with
 *   -ETIMEDOUT  The wait has ended. The message says who builds the version.
 *   -EBUSY      This client has claimed the name already. Threads that are to wait for each other
 *               need a client each.
 *   -EACCES     This user may not publish into the model.
 *   -EDQUOT     A limit of this user was reached.
 *   -EEXIST     An alias has this name. A claim needs a tag. */
int gpuwm_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct gpuwm_mapping **ret_mapping);
/* Gives a claim up, so that the next one of those who wait is elected.
 *
 * Returns 0, also if the claim had ended with its connection. Fails with -ENOENT if this client has
 * not claimed the name, or if a publish has taken the claim over: gpuwm_publish_abort ends both. */
int gpuwm_claim_give_up(struct gpuwm_client *client, const char *name);

struct gpuwm_publish_options {
	size_t size;
	/* "model@tag". NULL: the version has no name, one rank, no alias and no joiners. Only its id
	 * (gpuwm_version_info) refers to it. It is freed when nobody has a lease of it any more. So it
	 * is committed with gpuwm_publish_commit_attached. */
	const char *name;
	const char *device; /* "host" or the UUID of a GPU; required */
	uint32_t rank, world; /* a world of 0 counts as 1 */
	/* The id (gpuwm_publish_id) of the publish that this part joins. NULL: this part begins a
	 * version. These may join: the user who began the publish, users and groups that join_uids
	 * and join_gids named then, and operators. For everybody else there is no such publish
	 * (-ENOENT). */
	const char *join;
	/* gpuwmd moves this alias to the version when the version is ready. NULL: none. */
	const char *alias;
	/* What the address of every tensor is a multiple of: a power of two from 16 to 2 MiB. 0:
	 * 256. It is part of the layout: gpuwm_switch needs versions with the same value. */
	uint64_t align;
	/* The most bytes that a segment has, unless one tensor is larger: a multiple of 2 MiB up to
	 * 1 TiB. 0: 16 GiB, or more if the part would need more than 252 segments. With another
	 * value such a part fails with -EINVAL, and the message says the smallest value that is
	 * possible. It is part of the layout, as `align` is. */
	uint64_t segment_bytes;
	/* Make the memory of a segment when gpuwm_publish_memory or gpuwm_publish_write first asks
	 * for a tensor in it, and the memory that nobody asked for at the commit. A publisher that
	 * copies tensors in the order of gpuwm_publish_order, and frees each source after its copy,
	 * then needs room for only one segment besides the memory of the sources. */
	bool stepwise;
	/* The version's key. NULL: it has none. Each part of a version has its own. gpuwm_metadata
	 * tells the fields, as "key.NAME". */
	const struct gpuwm_key_field *key;
	size_t key_count;
	/* For gpuwm_publish_commit_attached: whose versions gpuwm_switch may put into the mapping,
	 * as in gpuwm_attach_options. They do not matter for the version that is published. */
	const uint32_t *owner_uids;
	size_t owner_uid_count;
	bool owner_operator;
	/* Users and groups who may join this publish, besides the user who begins it: at most 16 of
	 * each, and only without `join`. NULL: nobody else. */
	const uint32_t *join_uids, *join_gids;
	size_t join_uid_count, join_gid_count;
	/* The version's name is a key: the version is cached. It never takes the alias `current` by
	 * itself. As soon as it is retired, another version may have its name, even while workers have
	 * leases of this one. Only without `join`, and only with a name. */
	bool cached;
	/* Only with `cached`: when the version becomes ready, gpuwmd retires this user's cached versions
	 * of the model that were begun before it, except for the last keep_last - 1 of them. At most
	 * 1,024. 0: it retires none. A version that an alias names stays. */
	uint32_t keep_last;
	/* Only with `cached`: gpuwmd retires the version this many milliseconds after the version has
	 * become ready, or once no alias names it any more. At most 2,592,000,000 (30 days). 0: never. */
	uint64_t ttl_ms;
	/* How long to wait (0: not at all; -1: for ever) if a quota of the user has no room, and will have
	 * room when versions of the user are freed: gpuwmd frees nothing in the grace time after its
	 * start (10 s by default). */
	int64_t wait_ms;
	/* Only with `cached`: the id of a ready version of the same model, to which this one belongs. gpuwmd
	 * retires this one when that version is freed. All such versions of one have at most 1 GiB: else
	 * the call fails with -EFBIG. NULL: it belongs to none. */
	const char *companion_of;
};

/* Begins to make a version, or one part of it. The call reserves budget on the device and plans the
 * layout, which follows from the names, dtypes and shapes alone. Then it makes writable memory for
 * every tensor, filled with zeros; with options.stepwise only the addresses. The user needs the
 * right to publish into the model: see "Who may do what" in the README.
 *
 * Returns 0 and sets *ret_publish. The caller owns the publish until a commit or
 * gpuwm_publish_abort frees it. The library copies the specs.
 *
 * Until the publish ends a thread of the library tells gpuwmd that this process lives, however long
 * the process fills the memory. If the process is stopped for publish_silence_ms of gpuwmd's
 * configuration (30 s by default), gpuwmd takes the budget back, and the commit fails with
 * -ETIMEDOUT.
 *
 * Fails with
 *   -EACCES  This user may not publish into the model.
 *   -EEXIST  The tag or the rank is taken.
 *   -EBUSY   Somebody else has claimed the name. The message says who.
 *   -ENOSPC  The device has no room. The message says the budget and what is free.
 *   -EINVAL  A spec or an option is wrong. For a spec the message names the tensor.
 *   -EDQUOT  A limit of this user was reached. The message names the limit, and what of it comes
 *            back by itself; options.wait_ms waits for that.
 *   -EAGAIN  The library's thread could not be made. */
int gpuwm_publish_begin(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
			const struct gpuwm_tensor_spec *specs, size_t count,
			struct gpuwm_publish **ret_publish);

/* Returns the id of the publish (32 digits), for gpuwm_publish_options.join. The text is valid
 * until the commit or abort. gpuwmd tells the id to nobody else, so this process gives it to
 * whoever is to join. */
const char *gpuwm_publish_id(const struct gpuwm_publish *publish);

/* Sets *ret_data to the place where the tensor at `position` of the specs is to be written: host
 * memory or a device pointer. Sets *ret_bytes to its size; ret_bytes may be NULL. The memory is
 * writable until the commit or abort. All tensors lie in one range of addresses.
 *
 * Returns 0. Fails with -ERANGE if there is no such tensor. With options.stepwise it also fails
 * with -ENOSPC if the device has no room for the segment. Nothing is lost then: try again, or
 * abort. */
int gpuwm_publish_memory(struct gpuwm_publish *publish, size_t position, void **ret_data, uint64_t *ret_bytes);
/* Sets ret_positions to the positions of all tensors in the order in which they lie in memory. The
 * caller owns the array, which has an entry for each spec. A publisher that writes in this order
 * needs one segment after the other. Returns 0. Fails with -ENOMEM. */
int gpuwm_publish_order(const struct gpuwm_publish *publish, size_t *ret_positions);
/* Copies host memory into a tensor, on host or on a GPU, from `offset` on. It returns when the copy
 * is done.
 *
 * Returns 0. Fails with -ERANGE if the tensor is too small, and with the codes of
 * gpuwm_publish_memory. */
int gpuwm_publish_write(struct gpuwm_publish *publish, size_t position, uint64_t offset, const void *data,
			uint64_t bytes);
/* Makes a DLPack export of a tensor's memory, as gpuwm_dlpack does, but writable. The export keeps
 * the memory: its data stays a valid address until its deleter is called, whatever becomes of the
 * publish. What the memory is then:
 *   - After gpuwm_publish_commit_attached it is the version's memory. The export holds the mapping,
 *     as any export of the mapping does. Nobody may write into the memory any more.
 *   - After gpuwm_publish_commit it is the version's memory. Nobody may write into it any more. The
 *     export has no lease: gpuwmd does not know that somebody uses the memory.
 *   - After a commit that failed, or an abort, it is this process's own memory, writable, with the
 *     bytes that it has. gpuwmd has given its budget to others. On host some pages may be sealed
 *     already: if somebody writes into such a page, the kernel copies the page first. The other
 *     pages are shared with forked children. On a GPU the memory can only be read after
 *     -ECONNABORTED, -ECONNREFUSED, -ETIMEDOUT, -EPROTO and -ENOMEM, since gpuwmd may have made a
 *     version of it.
 * On host a forked child has the memory if the fork comes after the commit or the abort, and
 * otherwise not.
 *
 * Returns 0 or 1 as gpuwm_dlpack does, and sets *ret. Fails with -ERANGE, with -EOVERFLOW, -EAGAIN
 * and -ENOMEM as gpuwm_dlpack does, and with the codes of gpuwm_publish_memory. */
int gpuwm_publish_dlpack(struct gpuwm_publish *publish, size_t position, struct DLManagedTensor **ret);
/* Does the same with the struct of DLPack 1.0, whose flags say that the memory is writable. Use it
 * only for a consumer that asks for DLPack 1.0. */
int gpuwm_publish_dlpack_versioned(struct gpuwm_publish *publish, size_t position,
				   struct DLManagedTensorVersioned **ret);
/* Adds a text to the version. Returns 0. Fails with -EINVAL if a text is not UTF-8 or the key
 * begins with "key.", and with -EEXIST if the key is there already. */
int gpuwm_publish_metadata(struct gpuwm_publish *publish, const char *key, const char *value);
/* Adds a small file to the version. The library copies the content. Returns 0. Fails with -EINVAL
 * if the name is not UTF-8, with -EEXIST if the name is there already, and with -EFBIG if all files
 * together have more than 32 MiB. */
int gpuwm_publish_file(struct gpuwm_publish *publish, const char *name, const void *data, size_t bytes);

/* Commits the part that this publish filled. The call waits until the device is idle and computes
 * the digests. Then it unmaps the memory (what exports use is mapped read-only instead), seals it
 * and hands it to gpuwmd's checker. It returns when the part is checked. The version is then ready,
 * unless other parts are still to come: it becomes ready when all of its parts are committed.
 * gpuwmd no longer needs this process.
 *
 * Keep the client until all ranks have begun: the version fails if the last connection that began
 * one of them ends before. To learn whether a version of several parts became ready, attach to it
 * with wait_ms.
 *
 * Returns 0, and sets *ret_version, which may be NULL. Returns 1 if all went well, but
 * options.alias could not be moved: gpuwm_error says why. The call frees the publish, except after
 * -ECHILD and -EBUSY.
 *
 * Fails with
 *   -EBADMSG       The check failed.
 *   -ETIMEDOUT     gpuwmd heard nothing of this process for too long.
 *   -ECANCELED     The publish ended before this commit, because the publisher of another part
 *                  died, or gpuwmd did. A restart keeps only versions that are ready.
 *   -ECONNRESET    The connection on which the publish began has ended, and the publish with it.
 *                  Publish again.
 *   -ECONNABORTED  gpuwmd took the commit, went away, and did not come back in time.
 *   -EIO           Somebody may still write into the memory, by a mapping or an RDMA pinning, so it
 *                  can't be sealed.
 *   -EBUSY         A CUDA stream is being captured. Nothing was done.
 *   -ECHILD        Nothing was done. */
int gpuwm_publish_commit(struct gpuwm_publish *publish, struct gpuwm_version_info *ret_version);

/* Commits as gpuwm_publish_commit does, and attaches to the version: under a lease, and mapped
 * where the publish's memory was. Every pointer of gpuwm_publish_memory and every export of
 * gpuwm_publish_dlpack stays valid, but read-only: a write faults as in any mapping. While the call
 * runs, nobody may use the memory or queue work that does. If the version has several parts, the
 * call waits until all are ready. So a thread that makes several parts commits all but one of them
 * by gpuwm_publish_commit.
 *
 * Returns 0, or 1 if the alias was not moved. Returns 2 if the version is ready and mapped, but the
 * library could not take a lease: gpuwm_error says why, and so does gpuwm_mapping_check from then
 * on. gpuwm_switch to the same version takes a lease. In all three cases *ret_mapping is set, and
 * the caller owns the mapping.
 *
 * Fails with the codes of gpuwm_publish_commit, with the error of another part that failed, and
 * with
 *   -ENOTRECOVERABLE  The library could not map the memory again. Exports have no memory any more.
 * After a failure memory without exports is gone, except after -ECHILD and -EBUSY. */
int gpuwm_publish_commit_attached(struct gpuwm_publish *publish, struct gpuwm_mapping **ret_mapping);

/* Gives the version up and frees the publish. Exports keep their memory. `gpuwmctl ls` shows
 * `reason`, which may be NULL. publish may be NULL.
 *
 * Returns 0, also if the publish had ended with its connection. */
int gpuwm_publish_abort(struct gpuwm_publish *publish, const char *reason);

/* ---- operating ---------------------------------------------------------
 *
 * These calls are for a client that was connected with GPUWM_CONNECT_ADMIN. On another client
 * they fail with -EACCES, with these exceptions:
 *   - gpuwm_swap is also for the owner of the model, and for whoever `publish` or `operate` of the
 *     model's section [model.N] in gpuwmd's configuration names.
 *   - gpuwm_retire, gpuwm_remove, gpuwm_demote, gpuwm_promote and gpuwm_describe are also for the
 *     same users, and for the publisher of the version.
 *   - gpuwm_pin, gpuwm_unpin and gpuwm_verify are also for whoever `operate` names. */

/* A file that the caller has open for reading. */
struct gpuwm_load_file {
	const char *name; /* beneath the folder: "model.safetensors", "1_Pooling/config.json" */
	int fd; /* the caller's own; it may be closed after the call */
};

struct gpuwm_load_options {
	size_t size;
	/* An absolute path, beneath a root of gpuwmd's configuration; or a version of another node:
	 * peer://HOST[:PORT]/MODEL@TAG, and peer:///MODEL@TAG of the first one that has it among the
	 * peers of the configuration. */
	const char *source;
	const char *name; /* "model@tag" */
	/* The device of each replica or, if the source has files for each rank, of each rank. NULL:
	 * the only GPU, or "host" if there is none. */
	const char *const *devices;
	size_t device_count;
	/* gpuwmd moves this alias to the version when the version is ready. NULL: none. */
	const char *alias;
	/* The job only looks at the source and makes a plan. gpuwm_query "jobs" tells the plan. */
	bool dry_run;
	/* The version's key, as in gpuwm_publish_options. NULL: none. */
	const struct gpuwm_key_field *key;
	size_t key_count;
	/* Needs an alias. The load fails, and changes nothing, if the alias does not name the version
	 * with this id when the load begins, and when the new version is ready. 32 zeros: if there is
	 * such an alias. NULL: gpuwmd moves the alias whatever it names, and if it can't, the new
	 * version is ready all the same. */
	const char *expect;
	/* Needs an alias. gpuwmd retires the version that the alias named. */
	bool retire_old;
	/* A version that is ready, as a ref: the new version takes its segments where the bytes are
	 * equal, so that both use the same memory. NULL: all memory is the new version's own. */
	const char *share_with;
	/* The size of segments: a multiple of 2 MiB, up to 1 TiB. Only a tensor makes a segment
	 * larger. 0: 2 GiB with share_with, else 16 GiB, or what it takes. */
	uint64_t segment_bytes;
	/* Cuts a checkpoint into so many ranks, 1 to 64, by the plan `cut`. `devices` has one device
	 * for each rank, or one for all of them. 0: the source is loaded as it is. */
	uint32_t ranks;
	/* The text of the plan: lines that say what each rank gets of which tensors (docs/protocol.md,
	 * "Cut plans"). NULL: none. */
	const char *cut;
	/* Of a version of another node: the SHA-256 over all of it, as 64 hexadecimal digits. The load
	 * fails, and takes nothing, if that node has another version. NULL: whatever it has. */
	const char *fingerprint;
	/* The files of the checkpoint's folder, as descriptors, 253 at most. A loader reads these files
	 * and opens none, so they need not lie beneath a root, and other users may be unable to open
	 * them. `source` is then a name that `jobs` shows, such as hf:ORG/NAME@COMMIT. Who may publish
	 * into the model may load so too; the version counts as published by this user. Files without
	 * a path do not describe a version: it can't be demoted to files, and does not come back after
	 * a reboot. NULL: the source is a path, or a peer's version. */
	const struct gpuwm_load_file *files;
	size_t file_count;
	/* Patterns of tensor names, such as "model.layers.3.*", 32 at most: the version has only the
	 * tensors that one of them matches, and takes memory for these. They are those of `globs` in
	 * gpuwm_attach_options. The job fails with -ENOENT if a pattern matches no tensor. With
	 * `ranks`, the plan cuts what is left. Another node's version is taken whole (-EINVAL).
	 * NULL: all tensors. */
	const char *const *only;
	size_t only_count;
	/* The id of a ready version of the same model, as in gpuwm_publish_options: the new version is cached,
	 * and belongs to it. NULL: it belongs to none. */
	const char *companion_of;
};
/* Starts a job that loads a version. Returns 0 and sets *ret_job to the job's number, without
 * waiting for the job. */
int gpuwm_load(struct gpuwm_client *client, const struct gpuwm_load_options *options, uint64_t *ret_job);
/* Waits until a job has ended.
 *
 * Returns 0 if the job is done. Returns 1 if it is done, but its alias could not be moved, or the
 * old version could not be retired: gpuwm_error says why.
 *
 * Fails with
 *   the job's own code  The job failed.
 *   -ECANCELED          The job was cancelled.
 *   -ETIMEDOUT          The job has not ended within wait_ms.
 *   -ENOENT             There is no such job.
 *   -ECONNABORTED       The job ended with the gpuwmd that ran it. gpuwm_query "list" tells whether
 *                       its version became ready. */
int gpuwm_job_wait(struct gpuwm_client *client, uint64_t job, int64_t wait_ms);
/* Cancels a queued or running job, and waits until the job has ended: about 2 seconds at most, and
 * longer only while its version is being stored.
 *
 * Returns 0 if the job was cancelled, by this call or by another one. Fails with -ENOENT if there
 * is no such job, or if it has ended otherwise; the message says how. */
int gpuwm_job_cancel(struct gpuwm_client *client, uint64_t job);

struct gpuwm_swap_options {
	size_t size;
	const char *model;
	const char *alias; /* NULL: "current" */
	const char *to; /* a tag, an alias or a version id. NULL: remove the alias */
	/* Move the alias only if it names the version with this id now. 32 zeros: only if there is
	 * no such alias. NULL: whatever it names. */
	const char *expect;
	/* Retire the version that the alias named. If `previous` names that version, gpuwmd clears
	 * `previous`. */
	bool retire_old;
};
/* Moves an alias to another version of its model, in one step, or removes the alias.
 *
 * Returns 0 and sets ret_old (33 bytes, may be NULL) to the id of the version that the alias named,
 * or to "" if there was none. Returns 1 if the alias was moved, but gpuwmd could not retire the old
 * version as retire_old asks, because another alias names it (gpuwm_error says which). The old
 * version then stays as it is, and `previous` names it.
 *
 * Fails with
 *   -EBUSY    The alias does not name what `expect` says.
 *   -ENOENT   There is no such model, version or alias.
 *   -EINVAL   The version is not ready.
 *   -EBADMSG  The version is tainted.
 *   -ENODEV   A part of the version was lost with its GPU. */
int gpuwm_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options, char ret_old[33]);
/* Pins a version under the name `pin`: gpuwmd does not free a version that has pins. Returns 0.
 * Fails with -EEXIST if the version has a pin of this name, with -ENOENT if there is no such
 * version, and with -EINVAL if it is not ready. */
int gpuwm_pin(struct gpuwm_client *client, const char *ref, const char *pin);
/* Removes a pin. Returns 0. Fails with -ENOENT if there is no such version or pin. */
int gpuwm_unpin(struct gpuwm_client *client, const char *ref, const char *pin);
/* Retires a version: gpuwmd gives no new leases on it, and frees it when its last lease and pin are
 * gone. The call waits up to wait_ms for that.
 *
 * Returns 0. Fails with -ETIMEDOUT if the version was not freed within wait_ms (not with a wait_ms
 * of 0), and with -EBUSY if an alias names it. */
int gpuwm_retire(struct gpuwm_client *client, const char *ref, int64_t wait_ms);
/* Retires a version as gpuwm_retire does, and revokes the leases that are left after_ms from now
 * (0: at once; at most 30 days). gpuwmd then frees the version, whatever the holders of the leases
 * do, and its name may be taken again. What a holder still maps stays charged to the device until
 * the holder has detached or exited.
 *
 * Returns 0. Fails with the codes of gpuwm_retire, and with
 *   -EBUSY   The version has pins, or an alias names it.
 *   -EACCES  The user is no operator, and `operate` of the model's section does not name it. */
int gpuwm_retire_by_force(struct gpuwm_client *client, const char *ref, uint64_t after_ms, int64_t wait_ms);
/* Removes a failed version from `list`. gpuwmd does so by itself after failed_keep_s of its
 * configuration (a day by default), when the tag is loaded or published again, and when 64 other
 * versions have failed after it.
 *
 * Returns 0. Fails with -EINVAL if the version did not fail (gpuwm_error()->detail says what frees
 * it), with -ENOENT, and with -EACCES. */
int gpuwm_remove(struct gpuwm_client *client, const char *ref);
enum gpuwm_kick_by {
	GPUWM_KICK_LEASE, /* the lease with this number */
	GPUWM_KICK_PID, /* all leases of the process with this pid */
	GPUWM_KICK_UID, /* all leases of the user with this uid */
};
/* Revokes leases. gpuwmd tells their holders (gpuwm_lost), who do not get these leases again.
 *
 * Returns 0 and sets *ret_json (ret_json may be NULL) to the leases as JSON, with the keys of
 * docs/protocol.md. The caller frees the text with free().
 *
 * Fails with
 *   -ENOENT  There is no such lease.
 *   -EDQUOT  gpuwmd can't remember more single leases of that user. GPUWM_KICK_UID has no such
 *            limit. */
int gpuwm_kick(struct gpuwm_client *client, enum gpuwm_kick_by by, uint64_t number, char **ret_json);
#define GPUWM_VERIFY_JOBS_MAX 64
/* Starts jobs that read the memory of a ready or retiring version again and compare it with its
 * digests: one job for each replica, or with `device` for each replica on that device. device may
 * be NULL.
 *
 * Returns 0, and sets ret_jobs and *ret_count to the numbers of the jobs, for gpuwm_job_wait. A job
 * fails with -EBADMSG if the memory differs from what was checked. The version is tainted then:
 * gpuwmd gives no new leases on it (-EBADMSG), and sends an event `tainted`, so that the workers
 * that have it learn of it.
 *
 * Fails with -ENOENT if there is no such version, with -ENODEV if it is not on the device, and with
 * -EINVAL if it is not ready. */
int gpuwm_verify(struct gpuwm_client *client, const char *ref, const char *device,
		 uint64_t ret_jobs[GPUWM_VERIFY_JOBS_MAX], size_t *ret_count);
/* Starts jobs that read the files from which a version comes back, and compare them with its digests: one job for each rank, or
 * with `device` for each replica on that device. The version may lie on any tier, and be in use. device may be NULL.
 *
 * Returns as gpuwm_verify. A job fails with -EBADMSG if the files differ, and with -ENOENT if one is missing; the version
 * stays as it is, since its memory may be as it was.
 *
 * Fails with -ENOENT if there is no such version, with -ENODEV if it is not on the device, and with -EINVAL if it is not ready, or
 * if no files are known from which it would come back. */
int gpuwm_verify_source(struct gpuwm_client *client, const char *ref, const char *device,
			uint64_t ret_jobs[GPUWM_VERIFY_JOBS_MAX], size_t *ret_count);

/* ---- tiers: where the memory of a version lies ---- */

#define GPUWM_MOVE_JOBS_MAX 64
/* Moves a ready version without leases and pins to a lower tier: "host" (host memory, for parts that
 * belong to GPUs) or "files" (no memory: the version can be loaded again from its source). It keeps
 * its name, id, aliases and digests. When a process attaches to it, gpuwmd brings it back first.
 *
 * Returns 0, and sets ret_jobs and *ret_count to the numbers of the jobs, for gpuwm_job_wait: one for
 * each part that moves. The version has moved when all of them are done; if one fails, the version
 * stays where it was. There are none if the version lies there already, or has a host copy and lies on
 * host when the call returns, or while the move waits until gpuwmd has closed other host copies (`moving` in `list`).
 *
 * Fails with
 *   -ENOENT  There is no such version.
 *   -EBUSY   It has leases or pins, or moves already. The message names the holders.
 *   -EINVAL  It is not ready, is cached or has no name, lies on a lower tier, or has no source.
 *   -ENOSPC  The host's budget has no room. */
int gpuwm_demote(struct gpuwm_client *client, const char *ref, const char *tier,
		 uint64_t ret_jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count);
/* Moves a version back to its devices. As gpuwm_demote; there are no jobs either while the move waits
 * for room, which `moving` of the version in gpuwm_query's "list" tells.
 *
 * Fails with -ENOENT, -EINVAL (it is not ready), -ENOSPC (the device's budget has no room) and
 * -EDQUOT. */
int gpuwm_promote(struct gpuwm_client *client, const char *ref, uint64_t ret_jobs[GPUWM_MOVE_JOBS_MAX],
		  size_t *ret_count);
/* Compares files with the memory of a version. If they have every byte of it, `source` is the source
 * of the version from then on, and the version can be demoted to "files". source is as for gpuwm_load.
 *
 * Returns as gpuwm_demote. A job fails with -EBADMSG if the bytes differ, and with -ENOENT if a file is
 * missing. */
int gpuwm_describe(struct gpuwm_client *client, const char *ref, const char *source,
		   uint64_t ret_jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count);

/* Makes gpuwmd give up everything that it holds: it removes all aliases, retires every version,
 * frees what is not used, and takes no new work until its next start. docs/protocol.md has the
 * details. Returns 0. */
int gpuwm_drain(struct gpuwm_client *client);
/* Frees the versions that were lost with a GPU: gpuwmd removes their aliases and revokes their
 * leases. It keeps pinned versions, and versions of which other devices hold all ranks.
 *
 * Returns 0. Fails with -EINVAL if the GPU is not lost, and with -ENODEV if there is no such
 * device. */
int gpuwm_drain_device(struct gpuwm_client *client, const char *device);
/* Makes gpuwmd read its configuration again. It needs GPUWM_CONNECT_ADMIN.
 *
 * Returns 0 when the new configuration is in force. After a failure the old one stays in force, and
 * the message names the file, the line and the error.
 *
 * Fails with
 *   -EINVAL  The new configuration is wrong, or changes what only a restart can change.
 *   -ENOENT  There is no such file.
 *   -EMFILE  The limits need more open files than gpuwmd may have. */
int gpuwm_reload(struct gpuwm_client *client);

/* ---- looking ---------------------------------------------------------- */

/* The filter of `drain` that leaves the descriptions on disk as they are: the next start of gpuwmd
 * takes the versions from there. The result has `kept_descriptions`, their number. */
#define GPUWM_DRAIN_KEEPS "keep-descriptions"

/* Asks gpuwmd for the result of a method, as JSON text with the keys of docs/protocol.md. The
 * methods, and what `filter` says (NULL: all):
 *   list     filter: a model. The result has the models that this user may attach to.
 *   region_list  filter: a region. The result has the regions that this user may open for reading.
 *   status   takes no filter.
 *   clients  takes no filter. It needs GPUWM_CONNECT_ADMIN, except for members of the observers'
 *            group.
 *   own_clients  takes no filter. The result is that of `clients`, of this user alone.
 *   metrics  takes no filter. It needs the same as `clients`.
 *   jobs     filter: the number of a job. It needs the same as `clients`.
 *   drain    filter: a device that is lost, or GPUWM_DRAIN_KEEPS. It needs GPUWM_CONNECT_ADMIN.
 *   reload   takes no filter. It needs GPUWM_CONNECT_ADMIN.
 *
 * Returns 0 and sets *ret_json. The caller frees the text with free(). */
int gpuwm_query(struct gpuwm_client *client, const char *method, const char *filter, char **ret_json);

/* ---- events ----------------------------------------------------------- */

struct gpuwm_event {
	/* The number of the event. Numbers go up. gpuwmd leaves out the events of models that this
	 * user may not attach to, so a gap does not mean that events are lost. The kind "lost"
	 * does. */
	uint64_t seq;
	/* A kind of docs/protocol.md. "lost": events are missing, so list again. "disconnected":
	 * the last event of the subscription, with the seq of the event before it. */
	const char *kind;
	/* "" if the kind has none. All texts here are valid during the callback only. */
	const char *model, *tag, *alias;
	/* 32 digits or "". In an event "swapped", "" says that the alias was removed. */
	const char *version;
	const char *json; /* everything that the event carries */
};
typedef void gpuwm_event_fn(const struct gpuwm_event *event, void *user_data);

/* Subscribes to events, on a connection of its own to the client's socket. after: the seq of the
 * last event that the caller has seen. UINT64_MAX: only events from now on. If no gpuwmd is there,
 * the call waits up to restart_ms.
 *
 * Returns 0 and sets *ret_events. The caller owns the subscription until gpuwm_events_close. A
 * subscription ends with the gpuwmd that it was opened with. Then open another one after the seq of
 * "disconnected": numbers go up across restarts. */
int gpuwm_events_open(struct gpuwm_client *client, uint64_t after, struct gpuwm_events **ret_events);
/* Ends and frees the subscription. events may be NULL. Always returns NULL. */
struct gpuwm_events *gpuwm_events_close(struct gpuwm_events *events);
/* Returns the descriptor for poll(2) or any event loop. The events own it. */
int gpuwm_events_get_fd(const struct gpuwm_events *events);
/* Returns the poll events to wait for on that descriptor. */
short gpuwm_events_get_events(const struct gpuwm_events *events);
/* Waits up to wait_ms for the first event, then calls fn for each event that has arrived.
 *
 * Returns their number, or 0 if no event came in time. Fails with -ECONNRESET after "disconnected",
 * and with -ECHILD. If an event could not be told, the call fails with -ENOMEM (out of memory) or
 * -EPROTO (gpuwmd sent what is no event), after it called fn for the others. The subscription goes
 * on then.
 *
 * Threads: fn must not call it, and two threads must not call it at once. */
int gpuwm_events_dispatch(struct gpuwm_events *events, int64_t wait_ms, gpuwm_event_fn *fn, void *user_data);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
