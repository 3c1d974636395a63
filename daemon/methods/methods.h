/* The handlers of the method table: what a request says in, an answer out. */
#ifndef GPUWM_DAEMON_METHODS_H
#define GPUWM_DAEMON_METHODS_H

#include "../../proto/message.h"
#include "../clients/access.h"
#include "../clients/owner_check.h"
#include "../clients/request.h"
#include "server.h"
#include "../net/session.h"

/* params: a struct of the params of the method's form. 0: answered, or a waiter will. Negative: refused with *error, by the caller. */
typedef int method_fn(struct request *request, const void *params, struct error *error);

/* methods_look.c */
method_fn method_hello, method_ping, method_status, method_clients, method_subscribe;
/* methods_metrics.c */
method_fn method_metrics;
/* methods_list.c */
method_fn method_list;
/* methods_lease.c */
method_fn method_get_handles, method_release, method_announce, method_resume;
/* methods_claim.c */
method_fn method_claim, method_claim_give_up;
/* methods_operate.c */
method_fn method_pin_version, method_unpin_version, method_hot_swap, method_retire, method_remove,
	method_reload;
/* methods_region.c, methods_region_create.c */
method_fn method_region_create, method_region_open, method_region_close, method_region_remove,
	method_loader_region;
/* methods_scratch.c */
method_fn method_scratch_acquire, method_scratch_release;
/* methods_region_list.c */
method_fn method_region_list;
/* methods_drain.c */
method_fn method_drain;
/* methods_kick.c */
method_fn method_kick;
/* methods_publish_begin.c */
method_fn method_publish_begin;
/* methods_publish_commit.c */
method_fn method_publish_commit, method_publish_abort;
/* methods_jobs.c */
method_fn method_load, method_jobs, method_cancel;
/* methods_verify.c */
method_fn method_verify;
/* methods_loader.c */
method_fn method_loader_hello, method_loader_checked, method_loader_done, method_loader_progress,
	method_loader_devices, method_loader_warm, method_loader_resident;

/* ---- what they share: params.c ---- */

/* The device `id`, or -ENODEV with those that there are. */
int params_device(struct server *server, const char *id, struct device **ret, struct error *error);
/* The job of the session's loader, which has begun it: it says something of it. -EINVAL: it has none. (methods_loader.c) */
int current_job(const struct request *request, struct job **ret, struct error *error);
/* The version that the reference names, of those that the request's session sees. */
int find_version(const struct request *request, const struct ref *ref, struct version **ret,
		 struct error *error);
/* -ESHUTDOWN while gpuwmd lets everything go. */
int params_open(const struct server *server, struct error *error);

/* What get_handles and claim ask for. */
struct lease_wanted {
	const struct ref *ref;
	const char *device; /* "": where it is */
	uint64_t rank;
	bool look; /* an operator looks at what workers don't get */
	struct owner_wish owner;
};
/* Takes again what was claimed before a restart, or before the connection ended, where the name is free. -EEXIST: it is
 * there, or others build it; -EBUSY: another session has claimed it; -EACCES: no publisher, or it is kept for another
 * user; -EINVAL, -EDQUOT. (methods_claim.c) */
int claim_resume(const struct request *request, const char *text, struct error *error);
/* 0: answered. *ret_later: not yet, but what is missing may come. */
typedef int lease_ask_fn(const struct request *request, const struct lease_wanted *wanted, bool *ret_later,
			 struct error *error);
/* Who gets a lease that the request asks for. */
struct lease_holder lease_holder_of(const struct request *request);
/* Grants a lease and answers; this and the next two: methods_lease.c. */
lease_ask_fn lease_answer;
/* Answers later: `wake` is called as in waiter.h, and calls lease_wake. */
int lease_wait(const struct request *request, enum wait_kind kind, const struct lease_wanted *wanted,
	       int64_t wait_ms, waiter_wake_fn *wake, struct error *error);
/* Asks again: answers and frees the waiter, or leaves it waiting. */
void lease_wake(struct waiter *waiter, bool expired, lease_ask_fn *ask);

/* Fills `ret` with a description of each device. A description points to its age in `ret_ages`, so both must live as long.
 * Returns the number of devices. */
uint32_t tell_devices(const struct server *server, struct device_told ret[DEVICES_MAX],
		      uint64_t ret_ages[DEVICES_MAX]);
/* limits: {…} */
void put_limits(struct message_writer *w, const struct server *server);

#endif
