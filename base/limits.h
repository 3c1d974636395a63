/* Every fixed limit of gpuwm, with where the number comes from.
 *
 * Limits that an operator may change are defaults here and keys of the
 * configuration file; those that shape the wire or the files are fixed.
 */
#ifndef GPUWM_BASE_LIMITS_H
#define GPUWM_BASE_LIMITS_H

#include <stdint.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* --- wire (fixed) ------------------------------------------------------ */

/* The versions of the protocol that this program speaks. Tests build other releases. */
#ifndef PROTOCOL_MIN
#define PROTOCOL_MIN 1
#endif
#ifndef PROTOCOL_MAX
#define PROTOCOL_MAX 1
#endif

/* The largest packet. A SEQPACKET message may have 212,960 bytes at the kernel's default buffers;
 * with 64 KiB three replies can wait before the peer must read. */
#define PACKET_BYTES_MAX 65536

/* the kernel's SCM_MAX_FD */
#define PACKET_FDS_MAX 253

/* Descriptors that may lie unread in a connection, besides one larger reply. The kernel counts
 * descriptors in flight against the sender's user, so a peer that never reads may hold back only a
 * few. To ask at each reply whether the peer has read would make one of four system calls of
 * get_handles. */
#define UNREAD_FDS_MAX 16

/* Unread descriptors in the connections of all users together. The kernel lets gpuwmd have
 * RLIMIT_NOFILE (20,000) of them at all of its peers. One user alone may leave half of this limit
 * unread: a largest reply for each of 16 workers, or several small ones for each of 256. */
#define UNREAD_FDS_ALL_MAX 8192

/* one descriptor of a packet is the index's */
#define PART_SEGMENTS_MAX (PACKET_FDS_MAX - 1)

/* How deep arrays and maps may nest. The deepest message today uses 7. */
#define MESSAGE_DEPTH_MAX 8

/* Entries of one map. The scan keeps the keys of each open map in a table on the stack. For this
 * many entries the table has 5 KiB, at up to MESSAGE_DEPTH_MAX levels. The largest map today has
 * 24. */
#define MESSAGE_MAP_MAX 256

/* Elements of a packet that gpuwmd reads: each key, each value and each container counts. The
 * largest request is a resume of RESUME_LEASES_MAX leases and RESUME_CLAIMS_MAX claims: a lease has at most
 * 15 elements (a copy is neither parked nor has it room), a claim 1, and 11 are around them, so there are 3,915 in all. The largest packet of a
 * loader, loader_checked with PART_SEGMENTS_MAX segments that are all shared, has 2,546. A packet of one-byte values
 * could have 65,500, which cost gpuwmd 1 ms; 4,096 elements cost 0.1 ms. */
#define MESSAGE_ELEMENTS_MAX 4096

/* The largest result that comes as a sealed memfd: 2,048 versions with 252 segments each are 12
 * MiB. */
#define MESSAGE_BODY_MAX MIB(64)

/* Users and groups that a publish names as its joiners. A group of ranks runs as one or two users.
 * A machine with more users than this puts them into a group. */
#define JOIN_UIDS_MAX 16
#define JOIN_GIDS_MAX 16

/* Bytes of room that a lease may ask for: more than any device has, and few enough that sums do not overflow. */
#define ROOM_BYTES_MAX (1ULL << 50)

/* A lease that waits to be awake keeps its place, and what is reserved for it, for so long after its request has ended. Clients that
 * notice Ctrl-C ask in questions of half a second. */
#define UNPARK_KEPT_MS 2000

/* Leases in one resume. With a device and a version id each takes 125 bytes, and ADDRESSES_PER_SESSION_MAX of them 140
 * bytes more. */
#define RESUME_LEASES_MAX 256
/* Claims in one resume. A name takes 260 bytes. */
#define RESUME_CLAIMS_MAX 64

/* The text of a cut plan. It travels in one packet, beside a key of 25 KiB, devices of 4 KiB, and roots. Plans of models
 * have 1 to 2 KiB. */
#define CUT_BYTES_MAX 16384
/* Rules of a cut plan: each name of a tensor is compared with each of them. Plans of models have 10 to 40. */
#define CUT_RULES_MAX 256

/* Globs of a load that takes only some tensors, and the bytes of each. They travel in the packet of a cut plan, with 8 KiB at most. A
 * range of layers takes two or three globs, and each is compared with the name of every tensor. Names of tensors have up to
 * 120 bytes. */
#define LOAD_GLOBS_MAX 32
#define LOAD_GLOB_BYTES_MAX 255

/* Lease numbers in one packet that tells a session which of its leases were revoked. Each takes 9
 * bytes. */
#define REVOKED_PER_PACKET 1024

/* Lease numbers in one event that tells subscribers which leases were revoked. They fill one line
 * of `gpuwmctl events`. */
#define REVOKED_PER_EVENT 100

/* --- names (fixed) ----------------------------------------------------- */

#define NAME_BYTES_MAX 128 /* a model, a tag, an alias, a pin */
#define ADDRESS_BYTES_MAX 128 /* "unix:" and the longest path of a socket are 112; as long as other texts */
#define DEVICE_BYTES_MAX 63 /* "MIG-" and a UUID are 40 */
#define DEVICE_NAME_BYTES_MAX 63 /* what a driver calls its GPU */
#define PHASE_BYTES_MAX 255 /* of a job; it may say why a loader is waited for, with a path in it */
#define PATH_BYTES_MAX 4095 /* PATH_MAX without its terminating zero */
#define TEXT_BYTES_MAX 1023 /* an error message, a reason */
#define ROOTS_MAX 32 /* folders that models are loaded from; the loader tries them in turn */

/* A name of DNS has at most 253 bytes. */
#define PEER_HOST_BYTES_MAX 253
/* "[", a host, "]:65535" */
#define PEER_ADDRESS_BYTES_MAX (PEER_HOST_BYTES_MAX + 8)
/* Peers, DNS names and secrets in the configuration. Lists of this length are written by hand. Larger sites have DNS.
 * They fit a packet twice over. */
#define PEER_LIST_MAX 64

/* The hexadecimal digits of a SHA-256, which names a version for other nodes. */
#define FINGERPRINT_TEXT 64

/* Fields of a version's key. vLLM's has 32 fields, and newer engines have more. With names of
 * NAME_BYTES_MAX bytes the key of a load takes at most 25 KiB of a packet. */
#define KEY_FIELDS_MAX 64
#define KEY_VALUE_BYTES_MAX 255

/* --- the index (fixed) ------------------------------------------------- */

/* A safetensors header may have 100,000,000 bytes. The index of such a file with short names is 2.5
 * times as large, and may carry the small files too. */
#define INDEX_BYTES_MAX MIB(288)
#define INDEX_FILES_BYTES_MAX MIB(32)
/* The longest name of a version's file with its subfolders: a quarter of PATH_MAX, so that it fits a path below any usual folder. */
#define FILE_NAME_BYTES_MAX 1024
/* How deep subfolders are looked into for such files. Repositories use 3 (a component, its tokenizer, its templates). */
#define FILE_DEPTH_MAX 8
#define TENSOR_NAME_BYTES_MAX 65535
#define TENSOR_DIMS_MAX 64 /* as many as torch takes */
#define SAFETENSORS_HEADER_MAX 100000000 /* the limit of the reference implementation */

/* --- memory layout ----------------------------------------------------- */

/* The alignment of tensors: a multiple of every vector width and of cuBLAS's preferred
 * alignment. */
#define TENSOR_ALIGN 256
/* The alignments that a publisher may choose: from a vector register to the alignment of segments,
 * whose addresses are multiples of 2 MiB on every kind of memory. */
#define TENSOR_ALIGN_MIN 16
#define TENSOR_ALIGN_MAX MIB(2)

/* What a CUDA context takes of a GPU, besides the bytes that its process loads. 523 MiB were
 * measured (H200, driver 580); a tenth more is for the module and stack of the digest kernel and
 * for other drivers. */
#define CONTEXT_BYTES MIB(576)

/* The size of segments: few and large ones. To attach 64 GiB takes the driver 4.3 ms in segments of
 * 2 GiB, 2.5 ms in segments of 16 GiB and 1.7 ms in one segment (H200). Each segment is also one of
 * the STORE_FDS_MAX descriptors. But to create these segments just after as much memory was freed
 * takes 127, 129 and 206 ms, for which a load waits. */
#define SEGMENT_BYTES_TARGET GIB(16)
/* The sizes of segments that a publisher may choose: from the granularity of a GPU to more than any
 * device holds. */
#define SEGMENT_BYTES_MIN MIB(2)
#define SEGMENT_BYTES_MAX GIB(1024)

/* The size of the segments of a load that shares memory with a resident version. A segment is shared
 * whole or not at all: smaller ones share more of two versions that differ in a few tensors, but a
 * part has at most PART_SEGMENTS_MAX of them (2 GiB are 504 GiB in all), and all versions together
 * have STORE_FDS_MAX descriptors. A tensor of the largest models of today fits one. */
#define SEGMENT_BYTES_SHARED GIB(2)

/* How many other versions `list` names that a version shares memory with: enough to see what is going
 * on, and so few that 1,024 versions that share with each other are listed in milliseconds. */
#define SHARERS_TOLD_MAX 64

/* --- the daemon (defaults; keys of [limits]) --------------------------- */

/* Descriptors of segments and indices in all. systemd's fd store can hold this many without making
 * the environment of the next start too long. */
#define STORE_FDS_MAX 2048
/* How an operator makes room for more than the service manager or the keeper was told to keep. */
#define STORE_FDS_REMEDY                                                                                       \
	"raise FileDescriptorStoreMax= and FDSTORE= of gpuwmd's unit, or --store-max of gpuwm-keeper"
/* The last name that gpuwmd uses in the fd store. A thousand names a second last for 500 years. */
#define STORE_NAME_MAX ((UINT64_C(1) << 44) - 1)
/* Descriptors of gpuwmd's own in the fd store: the state, and two sockets if nobody else keeps
 * them. */
#define STORE_FDS_OWN 3
#define VERSIONS_MAX 1024
/* Versions without a name: half of STORE_FDS_MAX descriptors, at two or more each. */
#define NAMELESS_MAX (STORE_FDS_MAX / 4)
/* The most bytes of a segment that gpuwmd gives to a publisher. Reading larger ones for a check takes
 * longer than the process that checks. */
#define GIVEN_BYTES_MAX MIB(16)
/* Bytes of the indices of all versions. They are host memory, besides every device's budget. A
 * thousand versions of 10,000 tensors need 1.5 GiB; a publisher's index could have 288 MiB. */
#define INDICES_BYTES_MAX GIB(4)

/* --- regions ------------------------------------------------------------ */

/* Processes that use a region at the same time. Two bits for each, with eight bits of a generation and four of a count, are
 * one word of 64 bits, which an atomic operation changes (chunk_word.h). A node's ranks and their feeders are half as many. */
#define REGION_USERS_MAX 26
/* Readers of one chunk that are not named: what four bits count. */
#define CHUNK_OPEN_MAX 15
/* Chunks of a region that are in use at once. gpuwmd goes through all of them when a user dies, in less than 0.1 ms. */
#define REGION_CHUNKS_MAX 4096
/* The alignment of chunks, for the same reasons as TENSOR_ALIGN. */
#define CHUNK_ALIGN 256
/* Blocks of a region. Each has 72 to 104 bytes of control memory, and gpuwmd goes through all words when a user dies, in less than 1 ms.
 * A KV cache of 64 GiB with 16 tokens a block has so many if a token has 16 KiB. */
#define REGION_BLOCKS_MAX 262144
/* Regions in all. Each has two descriptors in the fd store, besides those of its users: a quarter of STORE_FDS_MAX. */
#define REGIONS_MAX (STORE_FDS_MAX / 8)
/* Bytes of one message of a queue, with its tokens. A larger one goes into a pool's chunk. */
#define QUEUE_ITEM_BYTES_MAX MIB(1)
/* In its cell there are two numbers before it: how many bytes and how many tokens it has. */
#define QUEUE_CELL_HEAD_BYTES 8
#define QUEUE_CELL_BYTES_MAX (QUEUE_ITEM_BYTES_MAX + QUEUE_CELL_HEAD_BYTES)
/* Messages of a queue that wait. */
#define QUEUE_ITEMS_MAX 65536
/* Chunks that one message hands over. */
#define QUEUE_TOKENS_MAX 1024

#define SESSIONS_MAX 7872 /* two fds each: 15,744 of the usual 20,000 and more */
#define ADMIN_SESSIONS_MORE 64 /* further sessions on admin.sock, when workers have taken all */
/* Shares of gpuwmd's time, of a user each, are a descriptor each. Users beyond share the last one. */
#define FAIR_SHARES_MAX 256
/* Sockets of refused connections that wait while others are being closed. */
#define DISCARD_MAX 128
#define LEASES_PER_UID_MAX                                                                                     \
	65536 /* of 100 bytes; of 200 once revoked, until the holder has unmapped the memory */
/* Processes whose sessions have ended, but that live and may still map memory of revoked leases.
 * gpuwmd keeps a pidfd for each. One user may have a quarter of them. */
#define REVOKED_GONE_MAX 512
#define REVOKED_GONE_PER_UID_MAX (REVOKED_GONE_MAX / 4)
/* Leases of one user that an operator revoked one by one or by process, and that the user does not
 * get again. Each takes 9 bytes of every state that gpuwmd writes. To revoke all leases of the user
 * takes only one entry for each version. */
#define REVOKED_IDS_PER_UID_MAX 8192
#define REQUESTS_PER_UID_MAX 8192 /* requests that wait for something */
#define REQUESTS_PER_SESSION_MAX 64
/* Leases of one session that have an address. When the session ends, each of them is an event; so many leave most of
 * EVENTS_KEPT_MAX to others. A worker serves at one address, with a lease for each of its ranks. */
#define ADDRESSES_PER_SESSION_MAX 64
/* New connections of one user: at first as many as it may have at once, then this many a second,
 * which is a worker's start each millisecond. To refuse a connection costs 5 us; to find out whose
 * it is costs 10 us more. */
#define CONNECTS_PER_SECOND 1000
/* Log lines of one kind that one user can cause. 10 lines show what goes on; 1 line a second fills
 * at most 20 MB a day. */
#define LOG_LINES_BURST 10
#define LOG_LINES_PER_SECOND 1
/* Lines about changes that one user makes without being an operator. A deployment of 100 versions at
 * once is logged whole; 2 lines a second fill at most 50 MB a day. */
#define CHANGE_LINES_BURST 128
#define CHANGE_LINES_PER_SECOND 2
/* Seconds between two passes of the scrub, so that gpuwmd serves damaged memory for a day at most.
 * With 1 % of a core's 9 GB/s the scrub reads 7 TiB of host memory a day; with 1 % of a GPU's
 * memory bandwidth it reads far more than the GPU has. */
#define SCRUB_INTERVAL 86400
#define SCRUB_DUTY 1 /* percent of the time that the scrub works */
/* A version stays resident for so long before others may take its place, so that two versions which evict each other in
 * turn spend most of the time resident: 16 GiB come back from host memory in 0.3 s. */
#define MIN_RESIDENT_SECONDS 10
/* gpuwmd tries a demotion that failed again after so long: host memory that is full is full for longer than a moment. */
#define DEMOTE_AGAIN_MS 60000
/* What the scrub reads in one go: 60 us on an H200 (4.4 TB/s). A worker's kernel waits no longer
 * than that. */
#define SCRUB_CHUNK_BYTES MIB(256)
#define LOADERS_MAX 16 /* processes at once, the one that stands by included */
/* Open publishes of one user. As many of the user's parts are checked at the same time. It is half
 * of the loaders, so that one user can't keep the others from publishing. */
#define PUBLISHES_PER_UID_MAX (LOADERS_MAX / 2)
/* Promotions at once that attaching processes of one user have begun, each with a loader for each of its
 * parts. It is a quarter of the loaders, so that one user can't keep the others from promoting. */
#define PROMOTIONS_PER_UID_MAX (LOADERS_MAX / 4)
/* Names that sessions of one user have claimed, 700 bytes each. It is far more than can be built at
 * once, and few enough that one user's claims do not fill the result of `list`. */
#define CLAIMS_PER_UID_MAX 256
#define JOBS_QUEUED_MAX 256
/* Files that a load may be passed as descriptors: what one packet holds. The largest checkpoints have some 200 shards and 15 small
 * files. The packet also has room for that many names, each as long as file systems allow. */
#define LOAD_FILES_MAX PACKET_FDS_MAX
#define LOAD_FILE_NAME_BYTES_MAX 255
/* How long a loader waits for the files that it was promised. The library sends them as soon as gpuwmd has answered, so
 * whoever is silent for longer has stopped. It keeps a loader from others meanwhile. */
#define LOAD_FILES_WAIT_MS 5000
/* Parts that are begun and not checked, and loads whose files come as descriptors. gpuwmd holds a socket for each (see config_check_files).
 * One user may have all parts of one version, which is an eighth of the limit. */
#define CHECKS_OPEN_MAX 512
#define CHECKS_OPEN_PER_UID_MAX PARTS_PER_VERSION_MAX
#define JOBS_KEPT_MAX 1000 /* ended jobs that `jobs` still tells */
/* Notes of a job: which path its loader took, and what it could not have. A load has at most 12 of files that it left out, one for
 * each reason, and some ten others. */
#define JOB_NOTES_MAX 32
#define JOB_KEPT_SECONDS 3600
#define FAILED_KEPT_MAX 64 /* failed versions that `list` still tells, and as many without a name */
/* gpuwmd lists a failed version for this long, so that operators see in the morning why a load
 * failed in the night. */
#define FAILED_KEEP_SECONDS 86400
#define PINS_PER_VERSION_MAX 64
#define ALIASES_PER_MODEL_MAX 64
#define PARTS_PER_VERSION_MAX 64 /* ranks times replicas */
/* Leases that are awake together or not at all: those of one engine, of PARTS_PER_VERSION_MAX ranks with four models each. */
#define UNPARK_GROUP_MAX (4 * PARTS_PER_VERSION_MAX)
#define EVENTS_KEPT_MAX 1024 /* gpuwmd tells a subscriber that is further behind `lost` */

/* --- rules for models (fixed) ------------------------------------------ */

#define MODEL_RULES_MAX 64 /* sections [model.N]; the sections that name a session are bits of one word */
/* The greatest N of [model.N]. inih cuts a section's name at 49 bytes, and this is far more than
 * anybody counts. */
#define MODEL_RULE_NUMBER_MAX 1000000
#define RULE_MATCH_BYTES_MAX 255 /* a pattern; it may be longer than a line of the file */
/* Users and groups of one key. For larger sets make a group. To find a session's rights gpuwmd
 * compares this many names for each key of each section, once. */
#define RULE_NAMES_MAX 256
/* Users in the parameter `owner` of one request. Whoever trusts more users asks the operator for a
 * section. */
#define OWNER_UIDS_MAX 16

/* --- time -------------------------------------------------------------- */

/* How long a checker may say nothing. It only reads memory, at gigabytes a second, and reports
 * every 256 MiB: a checker that is silent for longer hangs in the kernel. */
#define CHECK_STALL_MS 30000
/* How long a load may make no progress before gpuwmd ends it, because its file system or its driver
 * hangs. A network file system that waits for its server (NFS tells after 3 minutes by default), or
 * for another server that takes over, comes back after minutes, so this is longer. Until then a
 * load that hangs holds its memory and a loader, nothing else. */
#define LOAD_STALL_MS 600000
/* How long gpuwmd may hear nothing from a publisher between begin and commit. Then it gives the
 * publisher up and takes the grant back. A thread of the library gives PUBLISH_SIGNS signs of life
 * in this time, so one of them may be late. A process that is silent for longer is stopped, or asks
 * for memory that it never fills. */
#define PUBLISH_SILENCE_MS 30000
#define PUBLISH_SIGNS 4
/* The time between two looks at a publisher that is silent, or gone from its checker: gpuwmd gives
 * it up at the second look. If gpuwmd itself was held up, what the publisher has sent may lie
 * unread at the first look, and the end of its connection comes in a moment. */
#define PUBLISH_LOOK_AGAIN_MS 500
/* How long a loader may take to start. cuInit takes 0.1 to 0.2 s; with cold drivers it took seconds
 * for ten GPUs. */
#define LOADER_START_MS 20000
/* If a loader stood by for a part that did not come, it ends this much later, because a publisher
 * may begin the next part. It holds 4 MiB of a GPU. To start another one takes gpuwmd 1 to 2 ms, in
 * which other requests wait. */
#define LOADER_IDLE_MS 2000
/* After a checker has checked a version without a name, or a cached one, on a GPU, it waits for so many seconds for the
 * next such version of the same user. Programs that pass tensors to each other do so many times a second. Whoever pauses
 * for longer does not notice the 0.1 s that making a context takes, and the context takes 0.5 GiB of the GPU meanwhile. */
#define CHECKER_KEEP_SECONDS 5
/* Idle checkers in all: a few programs that pass tensors at the same time. They take 2 GiB of one GPU at most, and leave
 * most of LOADERS_MAX to others even before they give way. */
#define CHECKERS_KEPT_MAX 4
/* Copies by legacy CUDA IPC in all. Each has a process of its own with a CUDA context: with half of them on one GPU
 * that is 4 GiB besides the bytes. The path is for the few processes of a node that can't take descriptors. */
#define COPIES_MAX 16
/* How long a copy stays after its last lease. A worker that is started anew within this time finds its copy; to make one takes
 * 0.2 s and the copying. If others need the room before, the copy ends at once. */
#define COPY_KEEP_SECONDS 10
/* If the last context that was kept had to go, or could not be made, gpuwmd waits this long before
 * it has another one made without a load: the process that was short of memory may be so again. */
#define KEEP_AGAIN_MS 10000
/* A loader that kept a context says at once that it begins its job. If it says nothing for this
 * long, it hangs in the driver, or gpuwmd has not noticed its end yet. Then another loader takes
 * the job. */
#define KEEP_BEGIN_MS 2000
/* How often a load or a check is given to another loader because the one that had it died before it began,
 * or because it might not read the source. The first
 * loader may have died before it got the job. If two die, the job itself may end them. */
#define LOAD_AGAIN_MAX 1
/* the pause before another loader is started to stand by, if the last one died at once */
#define LOADER_RETRY_MS 2000
/* deaths at start in a row after which gpuwmd fails the waiting jobs */
#define LOADER_RETRIES_MAX 3
/* How long a loader may take to end after a cancel or SIGKILL. A loader copies chunks of a few MiB
 * and looks for a cancel in between. A loader that the kernel has not let go by then hangs. */
#define LOADER_KILL_MS 2000
/* How long a loader may take to exit after its job. It tears its CUDA context down: for 120 GiB
 * that took 40 ms. */
#define LOADER_EXIT_MS 10000
/* How long publish_begin waits for memory that is being freed. To close 64 GiB of memfd takes 3.7
 * s, and a publisher that was killed exists until the kernel has taken its memory down. A publisher
 * that only closed its connection lives on with its memory. */
#define FREED_WAIT_MS 10000
/* how long to wait for the exit status of a dead loader, whose socket ends before it */
#define LOADER_STATUS_MS 200
/* How long the service manager may take to confirm what it keeps. systemd takes 0.9 s for 2,000
 * descriptors. */
#define STORE_CONFIRM_MS 30000
/* The time that gpuwmd asks the service manager for at start and at stop. The manager's
 * confirmations take time then, and so does closing memory (57 ms a GiB of memfd, in the kernel,
 * also after exit). */
#define EXTEND_SECONDS 120
/* How long a new gpuwmd waits for the end of the one before it. When gpuwmd is killed, the kernel closes its memory before
 * its lock and sockets: 1 TiB of memfd takes 58 s, at 57 ms a GiB. */
#define PREDECESSOR_END_MS 60000
/* how long replies may take to go out after SIGTERM, before gpuwmd exits */
#define STOP_DRAIN_MS 2000
/* How long after a restart gpuwmd keeps versions that nobody holds, for clients that come back. A
 * client tries at least every RECONNECT_MAX_MS. */
#define GRACE_MS 10000
/* the longest time that a forced retire may leave to the holders of leases: a month */
#define FORCE_AFTER_MS_MAX UINT64_C(2592000000)
/* The pause before gpuwmd tries again to revoke leases for which there was no memory. */
#define FORCE_RETRY_MS 1000
/* The longest time that a cached version may ask to be kept: a month, as for the times above. TTL_DAYS_MAX of
 * python/gpuwm/_publish/making.py is the same. */
#define CACHE_TTL_MS_MAX UINT64_C(2592000000)
/* What all companions of a version hold together. What an engine of 8 billion parameters compiles has some 100 to 300 MiB for each
 * configuration: some configurations have room, and a companion stays small beside the weights. COMPANION_BYTES_MAX of
 * python/gpuwm/engines/caches.py is the same. */
#define COMPANION_BYTES_MAX GIB(1)
/* An alias keeps a cached version whose time is over. gpuwmd looks again after this time: nobody waits for the memory
 * that closely. */
#define CACHE_LOOK_AGAIN_MS 10000
/* a client's first and longest pause between attempts to reach a gpuwmd that went away */
#define RECONNECT_MIN_MS 5
#define RECONNECT_MAX_MS 500
/* How long a client's call waits for the next gpuwmd. A service manager that usually starts it
 * within a second may be busy, and a worker that fails instead loads its model again. */
#define RESTART_WAIT_MS 30000
/* how long a client waits for a reply that needs no waiting in gpuwmd */
#define CALL_TIMEOUT_MS 30000
/* How long a client waits for gpuwmd's answer after a wait has ended. That answer says what was waited for, and gpuwmd under
 * load sends it within 36 ms (p99). The caller allowed no more time, so a gpuwmd that hangs gets not much longer. */
#define ANSWER_SLACK_MS 500

/* A user's entry of passwd; sysconf(_SC_GETPW_R_SIZE_MAX) says 1,024. */
#define PASSWD_BYTES 4096
#define GROUPS_MAX 65536 /* of one process: the kernel's NGROUPS_MAX */

/* The largest options struct of the library: a page, as for the kernel's own. A larger size was
 * never set. */
#define OPTIONS_BYTES_MAX 4096

/* What of a device may be granted unless the configuration says more precisely: the rest is for contexts, activations and
 * everybody else. */
#define BUDGET_PERCENT_CUDA 90
#define BUDGET_PERCENT_HOST 80

#endif
