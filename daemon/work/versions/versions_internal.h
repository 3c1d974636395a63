/* For the files versions*.c only. */
#ifndef GPUWM_DAEMON_VERSIONS_INTERNAL_H
#define GPUWM_DAEMON_VERSIONS_INTERNAL_H

#include "../../clients/audit.h"
#include "versions.h"
#include "../../../proto/wire/messages.h"

/* In versions_events.c. Sends an event of the kind `form`. */
void tell_version(struct work *work, const struct message_form *form, const struct version *version);
/* after_ms: when gpuwmd will revoke the leases that are left; NULL: never. */
void tell_retiring(struct work *work, const struct version *version, const uint64_t *after_ms);
void tell_failed(struct work *work, const struct version *version);
void tell_tainted(struct work *work, const struct version *version, const struct replica *replica,
		  const struct error *found);
void tell_swapped(struct work *work, const char *model, const char *alias, const struct swap_result *result);

/* In versions_due.c. Sets the timer for the version whose time by `due_ms` comes first; where no version has one, stops it. due_ms:
 * by the steady clock; 0: none. */
typedef uint64_t versions_due_fn(const struct version *version);
void versions_arm(struct work *work, uv_timer_t *timer, uv_timer_cb on_due, versions_due_fn *due_ms);

/* In versions_forced.c. Revokes the leases of a retiring version and frees the version at once, also within the grace time;
 * a pinned version when its last pin goes. The caller then saves the state and calls revoked_tell with the reason. */
void force_now(struct work *work, struct version *version);

/* In versions_cached.c; both do nothing for a version that is not cached. cached_set_time: the version becomes ready, and
 * its time begins; the caller saves the state. cached_ready: when the state is saved, retires the older versions for which
 * the version's keep_last leaves no place. */
void cached_set_time(struct version *version);
void cached_ready(struct work *work, struct version *version);

/* In versions_freed.c. If nothing holds the version any more, marks it: snapshots leave it out from then on, and the next
 * versions_settle frees it. Returns false if something holds it, or there is no memory. */
bool freeing_begin(struct work *work, struct version *version);

/* The end of a publish, for the metrics and the audit: versions_events.c. */
struct published {
	struct audit audit;
	struct session *session; /* of a publisher; NULL: all of them have left */
	uid_t owner;
	bool is_load; /* no publish of a program's */
	bool is_told;
};
/* Call it while the publish still knows its publishers. */
void published_look(struct work *work, const struct publish *publish, struct published *ret);
/* The version is ready, or has failed for this reason. */
void published_tell(struct work *work, const struct published *end, const struct error *failed);

#endif
