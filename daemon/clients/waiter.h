/* Requests whose answer comes later. Each is charged to its uid and counted
 * in its session, and goes with it. */
#ifndef GPUWM_DAEMON_WAITER_H
#define GPUWM_DAEMON_WAITER_H

#include "../../proto/digest.h"
#include "../../proto/names.h"
#include "../net/fair.h"
#include "owner_wish.h"
#include "../base/quota.h"
#include "request.h"

#include <uv.h>

struct clients;
struct version;
struct device;
struct waiter_name;
struct waiter;

/* What they wait for. */
enum wait_kind {
	WAIT_READY, /* a version to attach to */
	WAIT_CLAIM, /* the same, or to be the one who builds it */
	WAIT_FREED, /* a version's end */
	WAIT_JOB, /* a job's end */
	WAIT_CHECKED, /* a part's check */
	WAIT_STORED, /* a loader: what it handed over is in the fd store */
	WAIT_ROOM, /* a publish that contexts of other jobs are in the way of */
	WAIT_KINDS,
};

/* Answers and frees the waiter, or leaves it waiting (never when expired).
 * changed: the version that did (not told to those of WAIT_READY); NULL: look. */
typedef void waiter_wake_fn(struct waiter *waiter, const struct version *changed, bool expired);

struct waiter {
	struct request request;
	enum wait_kind kind;
	struct waiter *next, **link; /* of its kind */
	struct waiter *next_of_session, **link_of_session;
	struct quota_charge charge;
	waiter_wake_fn *wake;
	uv_timer_t timer;
	bool timed;
	struct fair_task task; /* it looks again: the answer is its user's work */
	bool expired; /* its time is over */
	struct waiter_name *of_name; /* waiter_name.h; NULL: it waits for no name */
	struct waiter *next_of_name, **link_of_name;

	/* What it was about, as far as its kind needs it. */
	struct ref ref;
	char device[DEVICE_BYTES_MAX + 1];
	uint32_t rank;
	bool look;
	struct owner_wish owner;
	struct version_id id; /* of a version, or of a publish */
	struct digest content;
	uint64_t job;
	void *asked; /* freed with the waiter */
};

/* wait_ms below 0: for ever. -EDQUOT, -ENOMEM. */
int waiter_new(const struct request *request, enum wait_kind kind, int64_t wait_ms, waiter_wake_fn *wake,
	       struct waiter **ret_waiter, struct error *error);
/* Without an answer. NULL is fine. */
struct waiter *waiter_free(struct waiter *waiter);

/* The waiter looks again in its user's share of time. */
void waiter_due(struct waiter *waiter);
/* Wakes all of a kind, the oldest first. Those of WAIT_READY may be thousands, whose answers are their users' work: those
 * whose name the changed version has (NULL: all) become due. */
void waiters_wake(struct clients *clients, enum wait_kind kind, const struct version *changed);
/* Refuses and frees all of a kind. */
void waiters_refuse(struct clients *clients, enum wait_kind kind, const struct error *error);

#endif
