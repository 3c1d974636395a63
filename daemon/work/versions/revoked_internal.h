/* What revoked.c, revoked_told.c and revoked_watch.c share; nobody else. */
#ifndef GPUWM_DAEMON_REVOKED_INTERNAL_H
#define GPUWM_DAEMON_REVOKED_INTERNAL_H

#include "leases.h"
#include "../../base/hash.h"
#include "../work.h"
#include "../../net/session.h"

/* What leases of one version share: it may be freed long before they are. */
struct of_version {
	struct version_id id;
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1];
	struct model_owner owner; /* of the model, when the first of them was revoked */
	uint64_t uses;
	/* While an event is written: the revoked leases of one holder. */
	struct revoked *event_first, **event_end;
	uint64_t event_count;
	struct of_version *event_next;
};

struct revoked {
	uint64_t id;
	struct revoked_holder *holder;
	struct of_version *of;
	struct version *version; /* NULL: it is freed */
	const struct device *device;
	uint32_t replica, rank;
	uint64_t bytes, since_ms, revoked_ms;
	struct shared_charge *shared; /* of the freed version's part */
	struct quota_charge charge;
	struct lease_room *room; /* that its process took besides the version */
	bool unsent; /* its descriptors never went out: nothing is mapped */
	struct revoked *prev_of_holder, *next_of_holder;
	struct revoked *prev_of_version, *next_of_version;
	struct revoked *prev_of_shared, *next_of_shared; /* of those that may map the same part */
	struct revoked *next_untold, *next_of_event;
	UT_hash_handle hh;
};

struct revoked_watch;

/* A session that held leases, and then the process behind it. */
struct revoked_holder {
	struct work *work;
	struct session *session; /* NULL: it has ended */
	uint64_t session_id, session_since_ms;
	struct peer peer; /* without its pidfd */
	char name[NAME_BYTES_MAX + 1];
	enum session_kind kind;
	struct revoked_watch *watch; /* NULL: the session is there */
	struct revoked_holder *prev_of_watch, *next_of_watch;
	struct revoked *first;
	struct revoked *untold, **untold_end;
	struct revoked_holder *prev, *next;
};

struct revoked_table {
	struct work *work;
	struct revoked *by_id;
	struct revoked_holder *holders;
	struct revoked_watch *watches;
	uint64_t count, watch_count;
};

/* Forgets it: what it kept is given back. */
void revoked_end(struct revoked *revoked);
/* Of a holder that has nothing any more. */
void revoked_holder_end(struct revoked_holder *holder);
/* The same, and of what it has. */
void revoked_holder_end_all(struct revoked_holder *holder);

/* In revoked_watch.c. When the peer's process has exited, revoked_holder_end_all is called. False: it has, or it can't be
 * watched, for which a line is logged unless this kernel has no pidfd of peers. */
bool revoked_watch(struct revoked_holder *holder, const struct peer *peer);
/* Of a holder that ends. */
void revoked_unwatch(struct revoked_holder *holder);

#endif
