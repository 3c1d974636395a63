/* The kinds of events, as gpuwmd and the library name them: for programs that wake up by some. proto/wire/messages_events.h has what each
 * says. */
#ifndef GPUWM_PROTO_EVENT_KIND_H
#define GPUWM_PROTO_EVENT_KIND_H

#define EVENT_VERSION_READY "version_ready"
#define EVENT_VERSION_FAILED "version_failed"
#define EVENT_VERSION_RETIRING "version_retiring"
#define EVENT_VERSION_FREED "version_freed"
#define EVENT_VERSION_REMOVED "version_removed"
#define EVENT_TAINTED "tainted"
#define EVENT_DEMOTED "demoted"
#define EVENT_PROMOTED "promoted"
#define EVENT_SWAPPED "swapped"
#define EVENT_ANNOUNCED "announced"
#define EVENT_REVOKED "revoked"
#define EVENT_JOB "job"
#define EVENT_PEER_LOST "peer_lost"
#define EVENT_DEVICE_LOST "device_lost"
#define EVENT_DEVICE_BACK "device_back"
#define EVENT_WANTED "wanted"
#define EVENT_REGION_MADE "region_made"
#define EVENT_REGION_ENDED "region_ended"
#define EVENT_REGION_USER_LOST "region_user_lost"
#define EVENT_DRAINING "draining"
#define EVENT_AUDIT "audit"

/* A message of its own: the subscriber has missed events. */
#define EVENT_LOST "lost"
/* The library's own: the subscription has ended. gpuwmd sends no such event. */
#define EVENT_DISCONNECTED "disconnected"

#endif
