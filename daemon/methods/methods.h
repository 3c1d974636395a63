/* The handlers of the method table: what a request says in, an answer out; and what they share. */
#ifndef GPUWM_DAEMON_METHODS_H
#define GPUWM_DAEMON_METHODS_H

#include "../../proto/wire/message.h"
#include "../../proto/wire/messages_lease.h"
#include "../clients/access.h"
#include "../clients/request.h"
#include "server.h"
#include "../net/session.h"
#include "../clients/audit.h"

struct load_job;
struct load_params;
struct load_wish;
struct packet;
struct region_user;

/* params: a struct of the params of the method's form. 0: answered, or a waiter will. Negative: refused with *error, by the caller. */
typedef int method_fn(struct request *request, const void *params, struct error *error);

/* methods_look.c */
method_fn method_hello, method_ping, method_status, method_clients, method_own_clients, method_subscribe;
/* methods_metrics.c */
method_fn method_metrics;
/* methods_list.c */
method_fn method_list;
/* methods_lease.c */
method_fn method_get_handles, method_release, method_announce, method_park, method_unpark, method_resume;
/* methods_claim.c */
method_fn method_claim, method_claim_give_up;
/* methods_operate.c */
method_fn method_pin_version, method_unpin_version, method_hot_swap, method_retire, method_remove,
	method_reload;
/* methods_region.c, methods_region_create.c */
method_fn method_region_create, method_region_open, method_region_close, method_region_remove,
	method_loader_region, method_scratch_acquire, method_scratch_release;
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
/* methods_tier.c */
method_fn method_demote, method_promote, method_describe, method_loader_moved;
/* methods_loader.c */
method_fn method_loader_hello, method_loader_checked, method_loader_done, method_loader_progress,
	method_loader_devices, method_loader_roots, method_loader_warm, method_loader_resident;
/* methods_copy.c */
method_fn method_loader_holds;

/* ---- what they share: params.c ---- */

/* The device `id`, or -ENODEV with those that there are. */
int params_device(struct server *server, const char *id, struct device **ret, struct error *error);
/* Checks that a source lies beneath a configured root, by its text only: the loader, which opens it, resolves it. -EINVAL, -EACCES.
 * (methods_jobs.c) */
int params_source(const struct config *config, const char *source, struct error *error);
/* Closes what a loader has handed over and nobody has taken. (methods_loader.c) */
void part_drop(struct server *server, const struct part *part);
/* The job of the session's loader, which has begun it: it says something of it. -EINVAL: it has none. (methods_loader.c) */
int current_job(const struct request *request, struct job **ret, struct error *error);
/* The version that the reference names, of those that the request's session sees. */
int find_version(const struct request *request, const struct ref *ref, struct version **ret,
		 struct error *error);
/* -ESHUTDOWN while gpuwmd lets everything go. */
int params_open(const struct server *server, struct error *error);

/* Returns whether the peer may take part in the publish that makes, or made, this version. Operators may; so may the user
 * who began the publish (unless as an operator), and the users and groups that its first publish_begin named. A loader
 * may if its own job makes the version. All others get the same error as for a publish that does not exist. */
bool may_take_part(const struct session *session, const struct version *version);

/* What get_handles and claim ask for. */
struct lease_wanted {
	const struct ref *ref;
	const char *device; /* "": where it is */
	uint64_t rank;
	bool look; /* an operator looks at what workers don't get */
	struct owner_wish owner;
	uint64_t promotion; /* that it has waited for (tiers_attach); 0: none */
	bool copied; /* by legacy CUDA IPC */
	uint64_t lease; /* a parked one, which is to be awake; 0: a new one */
	uint64_t generation; /* of the alias by which that was found */
	int64_t wait_ms; /* how long it waits to be awake */
	uint64_t room; /* bytes that the holder takes besides */
};
/* Of a request that can't be answered yet. */
struct lease_later {
	bool comes; /* what is missing may come */
	uint64_t promotion; /* what it has to wait for (tiers_attach); 0: no promotion */
	uint64_t lease; /* the parked one that waits for an attach with room; 0: none */
	uint64_t generation; /* of the alias by which that was found */
};
/* What a request for a lease came to. */
struct lease_found {
	struct version *version;
	uint32_t replica;
	uint64_t generation;
};
/* Takes again what was claimed before a restart, or before the connection ended, where the name is free. -EEXIST: it is
 * there, or others build it; -EBUSY: another session has claimed it; -EACCES: no publisher, or it is kept for another
 * user; -EINVAL, -EDQUOT. (methods_claim.c) */
int claim_resume(const struct request *request, const char *text, struct error *error);
/* 0: answered. */
typedef int lease_ask_fn(const struct request *request, const struct lease_wanted *wanted,
			 struct lease_later *ret_later, struct error *error);
/* Who gets a lease that the request asks for. */
struct lease_holder lease_holder_of(const struct request *request);
/* Grants a lease of the user's copy of the part, and answers, or lets the request wait until the copy is made. (methods_copy.c) */
int lease_copied(const struct request *request, const struct lease_found *found, struct error *error);
/* copies: […]; model NULL: of all models. (methods_copy.c) */
void put_copies(struct message_writer *w, struct session *session, const char *model);
/* What every answer says of a lease: its version and its part. The texts stay the version's. (methods_lease.c) */
struct get_handles_result lease_result(const struct version *version, uint32_t replica, uint64_t lease,
				       uint64_t generation);
/* Answers with the lease, its version and its part. */
void lease_tell_fds(const struct request *request, const struct lease_found *found, uint64_t lease);
/* Counts a lease that was granted. */
void lease_count_attach(const struct request *request, const struct version *version);
/* Returns the lease with this number that the request's connection has. NULL: it has none; the error says whether it was revoked. */
struct lease *lease_own(const struct request *request, uint64_t id, struct error *error);
/* The same for a lease that is there, wanted->lease, with room: it is not parked any more. */
lease_ask_fn lease_awake;
/* Grants a lease and answers; this, the one above and the next two: methods_lease.c. */
lease_ask_fn lease_answer;
/* The version gives no leases in its state. Fails always; *ret_later says whether it will. */
int lease_not_ready(const struct version *version, struct lease_later *ret_later, struct error *error);
/* The remedy if a version can't be attached yet. */
#define ATTACH_LATER "attach again later, or with a time to wait"
/* The version does not lie on its devices: begins its promotion, or waits for the one that goes on. Fails always. This one:
 * methods_tier.c. */
int lease_promote(const struct request *request, const struct lease_wanted *wanted, struct version *version,
		  struct lease_later *ret_later, struct error *error);
/* Answers later: `wake` is called as in clients/waiter.h, and calls lease_wake. */
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

/* ---- the audit: words.c ----
 * The words of each change for the audit: what the request asks for. */

/* Describes a request with these params, a struct of the params of the method's form, before the method runs. Returns false if the
 * request changes nothing that others see. */
typedef bool words_fn(const struct request *request, const void *params, struct audit *ret);

words_fn words_load, words_cancel, words_publish_begin, words_publish_commit, words_hot_swap, words_pin_version,
	words_unpin_version, words_demote, words_promote, words_describe, words_retire, words_remove,
	words_verify, words_kick, words_drain, words_reload, words_region_create, words_region_remove;

/* ---- dispatch: dispatch.c ----
 * From a packet to its method: one table says who may call what, and generic code checks all that it says. */

/* Handles one packet. Descriptors that no handler took stay the packet's. */
void dispatch_packet(struct server *server, struct session *session, struct packet *packet);

/* ---- what the methods of regions share: methods_region.c ---- */

/* Sets *ret to the request's process, as region_user_add takes it, with a new pidfd, which is the caller's. Fails with -ENOTSUP if the
 * kernel gives no pidfds, -EMFILE, -ENFILE, and -ECANCELED if the process is gone. */
int region_user_of(const struct request *request, struct region_user *ret, struct error *error);
/* Makes the waiter that answers the request when this user is here. Fails with -EDQUOT and -ENOMEM. */
int region_await(const struct request *request, const struct region_user *user, struct error *error);

/* A request with this `use` begins: refuses those of the same uid that wait with it for room or for a quota, whose connections may have
 * ended. Returns the user that an earlier request has made, or NULL. */
struct region_user *region_asked_before(const struct request *request, const struct version_id *use);
/* The request has the `use` of a user that there is: a process sends a request again whose answer was lost, and gets the same answer.
 * is_same: the request is about the user's region. A failure changes nothing. Fails with -EINVAL (it is another process, or not
 * is_same), -EOWNERDEAD or -ESHUTDOWN (the region has ended), -EMFILE, -ENFILE, -EDQUOT and -ENOMEM. */
int region_again(struct request *request, struct region_user *user, bool is_same, struct error *error);

/* Sets the error of a region that is not there, or that the session does not see. Returns -ENOENT. */
int region_unknown(const char *reference, struct error *error);

/* ---- loads of files: load_files.c ----
 * Loads whose files come as descriptors, through a socket from whoever asked to the loader: gpuwmd takes descriptors from loaders
 * only. Their version counts as published by the user who asked. */

/* Whether the session may begin this load. Fails with -EACCES; and as claims_check, if another user builds the version. */
int load_rights(const struct request *request, const struct load_params *params, bool by_operator,
		struct error *error);
/* Checks the source of a load with files, which only names them. Fails with -EINVAL. */
int load_files_check(const struct load_wish *wish, struct error *error);
/* The version of the load is charged, and its turn comes, as a publisher's, and its alias moves by the rights of the user's present
 * groups: the user may have gone by then. Fails with -ENOMEM. */
int load_as_publisher(struct load_job *load, const struct request *request);
/* Makes the socket. The job has one end; sets *ret_sock to the other one, the caller's. Fails with -EDQUOT and others. */
int load_take_files(struct job_table *jobs, struct job *job, int *ret_sock, struct error *error);
/* Answers with the job, and with the socket, which it takes over; -1: there is none. */
void load_answer(const struct request *request, const struct job *job, int sock);

#endif
