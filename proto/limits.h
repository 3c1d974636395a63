/* Every fixed limit of gpuwm, with where the number comes from.
 *
 * Limits that an operator may change are defaults here and keys of the
 * configuration file; those that shape the wire or the files are fixed.
 */
#ifndef GPUWM_PROTO_LIMITS_H
#define GPUWM_PROTO_LIMITS_H

#include <stdint.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* --- wire (fixed) ------------------------------------------------------ */

/* The versions of the protocol that this program speaks. */
#define PROTOCOL_MIN 1
#define PROTOCOL_MAX 1

/* Largest packet. A SEQPACKET message may be 212,960 bytes at the kernel's
 * default buffers; 64 KiB lets three replies queue before the peer must read. */
#define PACKET_BYTES_MAX 65536

/* The kernel's SCM_MAX_FD. */
#define PACKET_FDS_MAX 253

/* Descriptors that may lie unread in a connection, beside one larger reply.
 * The kernel counts those in flight against the sender's user, so a peer that
 * never reads may park few; asking at each reply whether it has read would make
 * one system call in four of get_handles. */
#define UNREAD_FDS_MAX 16

/* The same for the connections of all users together: the kernel lets gpuwmd have RLIMIT_NOFILE (20,000) unread descriptors
 * at all of its peers. One user alone may leave half of this unread: that is a largest reply for each of 16 workers, or
 * several small ones for each of 256. */
#define UNREAD_FDS_ALL_MAX 8192

/* One descriptor of a packet is the index. */
#define PART_SEGMENTS_MAX (PACKET_FDS_MAX - 1)

/* Nesting of arrays and maps. The deepest message today uses 7. */
#define MESSAGE_DEPTH_MAX 8

/* Entries of one map. The scan keeps the keys of each open map in a table on the stack, of 5 KiB for so many entries,
 * at up to MESSAGE_DEPTH_MAX levels. The largest map today has 24. */
#define MESSAGE_MAP_MAX 256

/* Keys and values of a packet that gpuwmd reads, with containers and all that they hold. The largest request is a resume
 * of RESUME_LEASES_MAX leases and RESUME_CLAIMS_MAX claims: a lease has 7 elements, a claim 1, and 11 are around
 * them, so there are 1,867 in all. The largest packet of a loader, loader_checked with PART_SEGMENTS_MAX segments, has
 * 1,284. A packet of one-byte values could have 65,500, which cost gpuwmd 1 ms; 4,096 elements cost 0.1 ms. */
#define MESSAGE_ELEMENTS_MAX 4096

/* Largest result that comes as a sealed memfd: 2,048 versions with 252
 * segments each are 12 MiB. */
#define MESSAGE_BODY_MAX MIB(64)

/* Users and groups that a publish names as its joiners: a group of ranks runs as one or two users, and who has more
 * makes a group of them. */
#define JOIN_UIDS_MAX 16
#define JOIN_GIDS_MAX 16

/* Leases of one resume: with a device and a version id each takes 125 bytes. */
#define RESUME_LEASES_MAX 256
/* And claims: a name takes 260. */
#define RESUME_CLAIMS_MAX 64

/* Ids of one packet that tells a session which of its leases were revoked: each takes 9 bytes. */
#define REVOKED_PER_PACKET 1024

/* Ids of one event that tells subscribers which leases were revoked: one line of gpuwmctl events. */
#define REVOKED_PER_EVENT 100

/* --- names (fixed) ----------------------------------------------------- */

#define NAME_BYTES_MAX 128 /* a model, a tag, an alias, a pin */
#define DEVICE_BYTES_MAX 63 /* "MIG-" and a UUID is 40 */
#define PATH_BYTES_MAX 4095 /* PATH_MAX without its zero */
#define TEXT_BYTES_MAX 1023 /* an error message, a reason */
#define ROOTS_MAX 32 /* folders that models are loaded from; each is tried in turn */

/* A version's key: vLLM's has 32 fields, and newer engines have more. With NAME_BYTES_MAX for a field's name,
 * the key of a load takes 25 KiB of a packet at most. */
#define KEY_FIELDS_MAX 64
#define KEY_VALUE_BYTES_MAX 255

/* --- the index (fixed) ------------------------------------------------- */

/* A safetensors header may be 100,000,000 bytes; the index of such a file with
 * short names is 2.5 times as large, and may carry the small files. */
#define INDEX_BYTES_MAX MIB(288)
#define INDEX_FILES_BYTES_MAX MIB(32)
#define TENSOR_NAME_BYTES_MAX 65535
#define TENSOR_DIMS_MAX 64 /* as many as torch takes */
#define SAFETENSORS_HEADER_MAX 100000000 /* the reference's own limit */

/* --- memory layout ----------------------------------------------------- */

/* Where tensors begin: a multiple of every vector width and of cuBLAS's
 * preferred alignment. */
#define TENSOR_ALIGN 256
/* What a publisher may ask for: from a vector register to where segments begin, whose addresses
 * are multiples of 2 MiB on every kind of memory. */
#define TENSOR_ALIGN_MIN 16
#define TENSOR_ALIGN_MAX MIB(2)

/* What a process with a CUDA context takes of a GPU beside its bytes: 523 MiB were measured (H200, driver
 * 580), and a tenth more is left to the digest kernel's module and stack and to other drivers. */
#define CONTEXT_BYTES MIB(576)

/* Size policy of segments: few and large. To attach 64 GiB takes the driver 4.3 ms in segments of 2 GiB, 2.5 in
 * those of 16 and 1.7 in one (H200), and each is one of the STORE_FDS_MAX descriptors; but to create it
 * just after as much was freed takes 127, 129 and 206 ms, which a load waits for. */
#define SEGMENT_BYTES_TARGET GIB(16)
/* What a publisher may ask for instead: from the granularity of a GPU to more than any device holds. */
#define SEGMENT_BYTES_MIN MIB(2)
#define SEGMENT_BYTES_MAX GIB(1024)

/* --- the daemon (defaults; keys of [limits]) --------------------------- */

/* Descriptors of segments and indices in all: what systemd's fd store can
 * hold without making the next start's environment too long. */
#define STORE_FDS_MAX 2048
/* The last name there; a thousand a second last for 500 years. */
#define STORE_NAME_MAX ((UINT64_C(1) << 44) - 1)
/* Of the fd store besides: the state, and two sockets where nobody else keeps them. */
#define STORE_FDS_OWN 3
#define VERSIONS_MAX 1024
/* Indices of all versions: host memory beside every device's budget. A thousand
 * versions of 10,000 tensors need 1.5 GiB; a publisher's could be 288 MiB each. */
#define INDICES_BYTES_MAX GIB(4)

/* What versions of one user's processes take, so that one user can't take all: half of each table. Operators' loads and
 * publishes are free of these. Bytes have no limit by default but the budgets of the devices: on most machines one user
 * publishes all that there is. */
#define VERSIONS_PER_UID_MAX (VERSIONS_MAX / 2)
#define FDS_PER_UID_MAX (STORE_FDS_MAX / 2)
#define INDEX_BYTES_PER_UID_MAX (INDICES_BYTES_MAX / 2)

#define SESSIONS_MAX 7936 /* two fds each: 15,872 of the usual 20,000 and more */
#define ADMIN_SESSIONS_MORE 64 /* on admin.sock, when workers have taken all */
#define SESSIONS_PER_UID_MAX 6144
/* Shares of gpuwmd's time, of a user each, are a descriptor each. Users beyond share the last one. */
#define FAIR_SHARES_MAX 256
/* Sockets of refused connections that wait while others are being closed. */
#define DISCARD_MAX 128
#define LEASES_PER_UID_MAX                                                                                     \
	65536 /* 100 bytes each; 200 once revoked, until the holder has unmapped the memory */
/* Processes that live, whose sessions have ended, and that may map what was revoked: each is a pidfd more. One user's may
 * be a quarter of them. */
#define REVOKED_GONE_MAX 512
#define REVOKED_GONE_PER_UID_MAX (REVOKED_GONE_MAX / 4)
/* Ids of one user's leases that were kicked one by one or by process, and that the user does not get again: 9 bytes each
 * of every state that is written. To kick all leases of the user takes one entry for each version. */
#define REVOKED_IDS_PER_UID_MAX 8192
#define REQUESTS_PER_UID_MAX 8192 /* requests that wait for something */
#define REQUESTS_PER_SESSION_MAX 64
/* New connections of one user: all that it may have at once, then so many a second, which is a worker's start each
 * millisecond. To refuse one costs 5 us, to find out who it is 10 us more. */
#define CONNECTS_PER_SECOND 1000
/* Log lines that one user causes, of a kind: 10 tell what goes on, 1 a second fills 20 MB a day at most. */
#define LOG_LINES_BURST 10
#define LOG_LINES_PER_SECOND 1
/* Seconds between the scrub's passes: what has gone wrong is served for a day at most. At 1 % of a core's 9 GB/s
 * a day reads 7 TiB of host memory, at 1 % of a GPU's memory bandwidth far more than it has. */
#define SCRUB_INTERVAL 86400
#define SCRUB_DUTY 1 /* percent of the time */
/* What the scrub reads in one go: 60 us on an H200 (4.4 TB/s), which a worker's kernel waits at most. */
#define SCRUB_CHUNK_BYTES MIB(256)
#define LOADERS_MAX 16 /* processes at once, the standby one included */
/* Open publishes of one user, and as many of its parts are checked at the same time: half of the loaders, so that one
 * user can't keep the others from publishing. */
#define PUBLISHES_PER_UID_MAX (LOADERS_MAX / 2)
/* Names that sessions of one user are to build; 700 bytes each. Far more than can be built at once, and
 * few enough that one user's do not fill what `list` tells. */
#define CLAIMS_PER_UID_MAX 256
#define JOBS_QUEUED_MAX 256
/* Parts that are begun and not checked; gpuwmd holds a socket for each (see config_check_files). Of one user all parts of
 * a version, which is an eighth of all. */
#define CHECKS_OPEN_MAX 512
#define CHECKS_OPEN_PER_UID_MAX PARTS_PER_VERSION_MAX
#define JOBS_KEPT_MAX 1000 /* ended jobs that `jobs` still tells */
#define JOB_KEPT_SECONDS 3600
#define FAILED_KEPT_MAX 64 /* failed versions that `list` still tells */
/* gpuwmd lists a failed version for so long, so that operators see in the morning why a load failed in the night. */
#define FAILED_KEEP_SECONDS 86400
#define PINS_PER_VERSION_MAX 64
#define ALIASES_PER_MODEL_MAX 64
#define PARTS_PER_VERSION_MAX 64 /* ranks times replicas */
#define EVENTS_KEPT_MAX 1024 /* a subscriber further behind is told `lost` */

/* --- rules for models (fixed) ------------------------------------------ */

#define MODEL_RULES_MAX 64 /* sections [model.N]: in which of them a session is named is a bit each of a word */
/* The greatest N: a section's name is cut at 49 bytes, and this is far more than anybody counts. */
#define MODEL_RULE_NUMBER_MAX 1000000
#define RULE_MATCH_BYTES_MAX 255 /* a pattern: longer than a line of the file may be */
/* Users and groups of one key. Larger sets are a group; a session's rights are found out with so many comparisons for
 * each key of each section, once. */
#define RULE_NAMES_MAX 256
/* Users in the wish `owner` of one request: who trusts more of them asks the operator for a section. */
#define OWNER_UIDS_MAX 16

/* --- time -------------------------------------------------------------- */

/* A checker reads memory only, at gigabytes a second, and reports every
 * 256 MiB: one that says nothing for this long hangs in the kernel. */
#define CHECK_STALL_MS 30000
/* A load whose loader gets nowhere: its file system hangs, or its driver. A network file system that
 * waits for its server (NFS tells after 3 minutes by default) or for another one to take over comes back
 * after minutes, so this is longer; a load that hangs holds its memory and a loader, nothing else. */
#define LOAD_STALL_MS 600000
/* A publisher between begin and commit of which nothing was heard for so long is given up, and its grant returns. The
 * library gives PUBLISH_SIGNS signs in this time from a thread of its own, so that one may be late; what is silent longer
 * is stopped, or begs for memory that it never fills. */
#define PUBLISH_SILENCE_MS 30000
#define PUBLISH_SIGNS 4
/* Between the first look that finds a publisher silent, or gone from its checker, and the one that gives it up: what it
 * has sent may lie unread when gpuwmd itself was held up, and the end of its connection comes in a moment. */
#define PUBLISH_LOOK_AGAIN_MS 500
/* cuInit takes 0.1 to 0.2 s; ten GPUs with cold drivers took seconds. */
#define LOADER_START_MS 20000
/* A loader that stood by for a part that did not come ends so much later: a publisher may begin the next one. It holds
 * 4 MiB of a GPU, and its start takes gpuwmd 1 to 2 ms, which others wait for. */
#define LOADER_IDLE_MS 2000
/* From when the last context that was kept had to go, or could not be made, to when one is made again without a load:
 * whoever was short of memory may be so again. */
#define KEEP_AGAIN_MS 10000
/* A loader that kept a context says at once that it begins its load. One that says nothing for so long hangs in the driver,
 * or its end has not been noticed yet: another loader takes the load. */
#define KEEP_BEGIN_MS 2000
/* Between starts of a standby loader that dies at once. */
#define LOADER_RETRY_MS 2000
/* Deaths at start in a row after which waiting jobs are failed. */
#define LOADER_RETRIES_MAX 3
/* Cancelled, or sent SIGKILL: how long a loader may take to end. One copies chunks of a
 * few MiB and looks in between; what a kernel has not let go by then hangs. */
#define LOADER_KILL_MS 2000
/* After its job's end a loader tears its CUDA context down: 120 GiB took 40 ms. */
#define LOADER_EXIT_MS 10000
/* How long publish_begin waits for memory that is being freed: closing 64 GiB of memfd takes 3.7 s, and a publisher that
 * was killed is gone when the kernel has taken its memory down. One that only closed its connection lives on with it. */
#define FREED_WAIT_MS 10000
/* A dead loader's socket ends before its exit status is known. */
#define LOADER_STATUS_MS 200
/* For the service manager to confirm what it keeps: systemd takes 0.9 s for 2,000 descriptors. */
#define STORE_CONFIRM_MS 30000
/* What the service manager is asked for at start and stop: its own confirmations take time then,
 * and so does closing what was let go (57 ms a GiB of memfd, in the kernel, also after exit). */
#define EXTEND_SECONDS 120
/* How long a new gpuwmd waits for the end of the one before it. When gpuwmd is killed, the kernel closes its memory before
 * its lock and sockets: 1 TiB of memfd takes 58 s, at 57 ms a GiB. */
#define PREDECESSOR_END_MS 60000
/* SIGTERM: how long replies may drain before the daemon leaves. */
#define STOP_DRAIN_MS 2000
/* After a restart: how long what nobody holds is kept for clients that come back. A
 * client tries every RECONNECT_MAX_MS at least. */
#define GRACE_MS 10000
/* How long a forced retire may leave to the holders of leases: a month. */
#define FORCE_AFTER_MS_MAX UINT64_C(2592000000)
/* The pause before gpuwmd tries again to revoke leases for which there was no memory. */
#define FORCE_RETRY_MS 1000
/* A client's first and longest pause between attempts to reach a gpuwmd that went away. */
#define RECONNECT_MIN_MS 5
#define RECONNECT_MAX_MS 500
/* How long a client's call waits for the next gpuwmd: a service manager that starts it within a
 * second may be busy, and a worker that fails instead loads its model again. */
#define RESTART_WAIT_MS 30000
/* What a client waits for a reply that needs no waiting in the daemon. */
#define CALL_TIMEOUT_MS 30000

/* Of an options struct of the library: as the kernel's own, a page. What claims more was never set. */
#define OPTIONS_BYTES_MAX 4096

#endif
