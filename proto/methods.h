/* Names on the wire. docs/protocol.md says what each method takes and returns. */
#ifndef GPUWM_PROTO_METHODS_H
#define GPUWM_PROTO_METHODS_H

/* From clients. */
#define METHOD_HELLO "hello"
#define METHOD_PING "ping"
#define METHOD_GET_HANDLES "get_handles"
#define METHOD_RELEASE "release"
#define METHOD_RESUME "resume"
#define METHOD_PIN_VERSION "pin_version"
#define METHOD_UNPIN_VERSION "unpin_version"
#define METHOD_HOT_SWAP "hot_swap"
#define METHOD_LOAD "load"
#define METHOD_PUBLISH_BEGIN "publish_begin"
#define METHOD_PUBLISH_COMMIT "publish_commit"
#define METHOD_PUBLISH_ABORT "publish_abort"
#define METHOD_CLAIM "claim"
#define METHOD_CLAIM_GIVE_UP "claim_give_up"
#define METHOD_RETIRE "retire"
#define METHOD_REMOVE "remove"
#define METHOD_KICK "kick"
#define METHOD_VERIFY "verify"
#define METHOD_LIST "list"
#define METHOD_STATUS "status"
#define METHOD_CLIENTS "clients"
#define METHOD_JOBS "jobs"
#define METHOD_CANCEL "cancel"
#define METHOD_SUBSCRIBE "subscribe"
#define METHOD_DRAIN "drain"
#define METHOD_RELOAD "reload"

/* In the parameter `owner` of get_handles and claim: versions that an operator made. */
#define OWNER_OPERATOR "operator"

/* From a loader, on the connection that gpuwmd made for it. */
#define METHOD_LOADER_HELLO "loader_hello"
#define METHOD_LOADER_CHECKED "loader_checked"
#define METHOD_LOADER_DONE "loader_done"
#define METHOD_LOADER_RESIDENT "loader_resident"
#define METHOD_LOADER_PROGRESS "loader_progress" /* notification */
#define METHOD_LOADER_DEVICES "loader_devices" /* notification */
#define METHOD_LOADER_WARM "loader_warm" /* notification */

/* To a loader: notifications. */
#define NOTIFY_LOADER_JOB "job"
#define NOTIFY_LOADER_CANCEL "cancel"
#define NOTIFY_LOADER_REPORT "report" /* tell the devices again */
#define NOTIFY_LOADER_WARM "warm" /* make CUDA contexts, and keep them for a load */

/* From a publisher to its checker, on the socket of publish_begin's reply. */
#define METHOD_HAND_IN "hand_in"

/* To subscribers. */
#define NOTIFY_EVENT "event"
#define NOTIFY_LOST "lost"

/* To the holder of leases, whether it has subscribed or not. */
#define NOTIFY_REVOKED "revoked"

#define EVENT_READY "version_ready"
#define EVENT_FAILED "version_failed"
#define EVENT_SWAPPED "swapped"
#define EVENT_RETIRING "version_retiring"
#define EVENT_FREED "version_freed"
#define EVENT_REMOVED "version_removed"
#define EVENT_TAINTED "tainted"
#define EVENT_REVOKED "revoked"
#define EVENT_JOB "job"
#define EVENT_PEER_LOST "peer_lost"
#define EVENT_DRAINING "draining"
#define EVENT_DEVICE_LOST "device_lost"
#define EVENT_DEVICE_BACK "device_back"

#endif
