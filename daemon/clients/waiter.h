/* Requests whose answer comes later. Each is charged to its user, and is freed with its session at the latest. */
#ifndef GPUWM_DAEMON_WAITER_H
#define GPUWM_DAEMON_WAITER_H

#include "../../proto/index/digest.h"
#include "../../proto/names.h"
#include "../net/fair.h"
#include "../../proto/wire/reference.h"
#include "../base/quota.h"
#include "request.h"

#include <uv.h>

struct clients;
struct version;
struct device;
struct waiter_name; /* opaque: who waits for the same name */
struct waiter;

/* What requests wait for. */
enum wait_kind {
	WAIT_READY, /* a version to attach to */
	WAIT_CLAIM, /* the same, or the claim to build it */
	WAIT_FREED, /* the end of a version */
	WAIT_JOB, /* the end of a job */
	WAIT_CHECKED, /* the check of a part */
	WAIT_STORED, /* of a loader: the fd store has what the loader handed in */
	/* Room for a publish or a region, which contexts of other jobs, memory that is being freed or versions of the same user will leave. */
	WAIT_ROOM,
	WAIT_REGION, /* a region that is being made, or the fd store, to keep what a user of a region needs */
	WAIT_COPY, /* a copy that is being made, for the lease with the number `job` */
	WAIT_SCRATCH, /* scratch memory of the region `ref`, in the order of asking */
	WAIT_KINDS,
};

/* Answers and frees the waiter, or leaves it waiting, which an expired waiter may not do. changed: the version that has changed; NULL:
 * it is not known, as always for WAIT_READY. */
typedef void waiter_wake_fn(struct waiter *waiter, const struct version *changed, bool expired);

struct waiter {
	struct request request;
	enum wait_kind kind;
	struct waiter *prev, *next; /* of its kind */
	struct waiter *prev_of_session, *next_of_session;
	struct quota_charge charge;
	waiter_wake_fn *wake;
	uv_timer_t timer;
	bool timed;
	struct fair_task task; /* looks again, in the time of its user, who pays for the answer */
	bool expired; /* its time to wait is over */
	struct waiter_name *of_name; /* NULL: it waits for no name */
	struct waiter *prev_of_name, *next_of_name;

	/* What the request asks for, as far as its kind needs it. */
	struct ref ref;
	char device[DEVICE_BYTES_MAX + 1];
	uint32_t rank;
	bool look, attach, copied;
	uint64_t generation;
	struct owner_wish owner;
	uint64_t promotion; /* the number of the promotion that a lease waits for; 0: none */
	struct version_id id; /* of a version, of a publish, or of a use of a region */
	struct digest content;
	uint64_t job; /* a job, or a lease */
	uint64_t room; /* bytes, of a lease */
	void *asked; /* freed with the waiter */
};

/* Makes a waiter for a request. wait_ms: how long it may wait; below 0: for ever. Sets *ret_waiter. Fails with -EDQUOT and -ENOMEM. */
int waiter_new(const struct request *request, enum wait_kind kind, int64_t wait_ms, waiter_wake_fn *wake,
	       struct waiter **ret_waiter, struct error *error);
/* Frees a waiter without an answer. Returns NULL; NULL is fine. */
struct waiter *waiter_free(struct waiter *waiter);

/* Lets the waiter look again, in its user's share of the loop's time. */
void waiter_due(struct waiter *waiter);
/* Wakes all waiters of a kind, the oldest first. Of WAIT_READY there may be thousands: those that wait for a name of the changed
 * version (NULL: all) look again in their users' time. */
void waiters_wake(struct clients *clients, enum wait_kind kind, const struct version *changed);
/* Refuses and frees all waiters of a kind. */
void waiters_refuse(struct clients *clients, enum wait_kind kind, const struct error *error);

/* ---- waiters by name ----
 * A table of waiters by what they wait for: a name (model@tag, model@alias) or the id of a version. So gpuwmd looks only at the
 * waiters that a change concerns. */

/* Enters the waiter, which waits for waiter->ref. Fails with -ENOMEM. */
int waiter_name_enter(struct waiter *waiter);
/* Removes the waiter. A waiter that is not in the table is fine. */
void waiter_name_leave(struct waiter *waiter);

/* Returns the waiter that has waited longest for this name, and next_of_name the others; NULL: there is none. */
struct waiter *waiter_name_first(const struct clients *clients, enum wait_kind kind, const struct ref *ref);

/* Calls `look` for each waiter that waits for a name of the version, or for `previous`, which moves with `current`. */
void waiter_names_of_version(struct clients *clients, enum wait_kind kind, const struct version *version,
			     void (*look)(struct waiter *waiter));

#endif
