/* Messages: questions about all that there is. messages.h says how.
 *
 * gpuwmd writes their arrays in loops over all that it has. The library hands these results to programs as JSON. */
#ifndef GPUWM_PROTO_MESSAGES_LOOK_H
#define GPUWM_PROTO_MESSAGES_LOOK_H

#include "message_form.h"
#include "messages_session.h"

/* ---- list ---- */

extern const struct message_form form_list;
struct list_params {
	const char *model;
};
/* The map also has the arrays `versions`, `models`, `aliases`, `claims` and `copies`. */
struct list_result {
	uint64_t seq;
};
struct version_named {
	const struct version_id *version;
	const char *model, *tag;
};
/* The map also has the array `parts`. */
struct version_listed {
	const struct version_id *version;
	const char *model, *tag, *state;
	uint64_t created_ms;
	const uint64_t *ready_ms, *force_at_ms, *expire_at_ms;
	bool cached;
	const struct version_id *companion_of; /* NULL: of none */
	uint64_t world, bytes, tensors;
	const struct digest *layout, *content;
	uint64_t owner_uid;
	bool by_operator;
	uint64_t leases;
	struct {
		const char *const *items;
		uint32_t count;
	} pins;
	const struct error *error, *tainted;
	const char *tier, *moving,
		*source; /* tier: NULL for "device"; moving: the tier that it is on its way to */
	const uint64_t *last_used_ms;
	const struct error *promotion_error;
	bool described; /* a start without a state would find it */
	const uint64_t *host_copy_bytes; /* NULL: it has no host copy */
	const uint64_t *shared_bytes;
	struct {
		const struct version_named *items;
		uint32_t count;
	} shared_with;
};
struct part_listed {
	uint64_t rank;
	const char *device, *state;
	uint64_t bytes, index_bytes, segments;
	const uint64_t *shared_bytes;
};
struct model_listed {
	const char *model;
	uint64_t owner_uid;
	bool by_operator;
};
struct alias_listed {
	const char *model, *alias;
	const struct version_id *version;
	uint64_t generation;
	const struct version_id *before;
};
struct claim_listed {
	const char *model, *tag;
	uint64_t uid;
	const uint64_t *session, *pid;
	const char *command;
	uint64_t since_ms;
	bool begun;
};
/* A copy of a part, by legacy CUDA IPC. */
struct copy_listed {
	const struct version_id *version;
	const char *model, *tag;
	uint64_t rank;
	const char *device, *state;
	uint64_t uid, bytes, leases, since_ms;
	const uint64_t *pid; /* of the holder */
};
extern const struct record copy_listed_record;
extern const struct record version_listed_record, part_listed_record, model_listed_record, alias_listed_record,
	claim_listed_record;

/* ---- status ---- */

extern const struct message_form form_status;
struct scrub_told {
	uint64_t passes;
	const uint64_t *last_ms;
	bool running;
	uint64_t skipped;
};
/* The map also has `limits`, and the array `keeping`: loaders that keep contexts. */
/* The folder of descriptions, and what came of it. */
struct tiers_told {
	const char *folder; /* NULL: none is configured */
	const struct error *error; /* why it can't be used, or what could not be written */
	uint64_t described;
	bool pending; /* changes are not written yet */
	uint64_t found, to_restore, restored, not_restored;
};
/* A root as a loader found it. */
extern const struct record root_told_record;
struct root_told {
	const char *root; /* "": the loader's service names none */
	const struct error *error; /* why it can't be used; NULL: it can */
};
/* What the last loader said that judged the roots. */
struct roots_told {
	uint64_t pid, age_ms; /* the loader's, as the loader says it; how long ago */
	struct {
		const struct root_told *items;
		uint32_t count;
	} roots;
};
struct status_result {
	const char *server;
	const struct version_id *instance;
	uint64_t pid, uptime_ms;
	bool draining;
	uint64_t seq, sessions, leases, revoked, still_mapped, versions, nameless, aliases, pins, publishes,
		claims, regions, region_users, region_bytes;
	uint64_t waiting, jobs_running;
	const uint64_t *jobs_queued, *demoted;
	uint64_t loaders;
	bool standby;
	uint64_t fds, rss, requests, refused, bytes, shared_bytes, index_bytes, segments;
	const struct version_id *ledger;
	uint64_t epoch;
	bool kept;
	uint64_t adopted, lost, unread, grace_ms;
	uint64_t awaited; /* leases; an older gpuwmd does not say */
	const struct error *locked;
	struct {
		const struct device_told *items;
		uint32_t count;
	} devices;
	struct {
		const char *const *items;
		uint32_t count;
	} roots;
	const struct scrub_told *scrub;
	const struct tiers_told *tiers;
	const uint64_t *copies, *copy_bytes; /* NULL: an older gpuwmd */
	const char *config; /* the file of the configuration; NULL: there is none */
	const char *program; /* the file that gpuwmd was started from; NULL: not known */
	const bool *replaced; /* that file is no longer there, or is another one; NULL: not known */
	const uint64_t *standby_pid; /* of the loader that gets the next job; NULL: none stands by */
	const struct roots_told *roots_judged; /* NULL: no loader has said yet */
};
/* What would leave a device first if somebody needed more room there. */
struct leaves_next_told {
	const char *device;
	const struct version_id *version;
	const char *model, *tag;
	uint64_t bytes;
	const char *to;
};
extern const struct record leaves_next_record;
/* The map also has the array `contexts`. */
struct keeping_told {
	uint64_t pid;
	bool ready;
	const uint64_t *left_ms;
	bool checks;
	const uint64_t *uid; /* for operators and observers */
};
struct context_told {
	const char *device;
	uint64_t bytes;
};
extern const struct record keeping_told_record, context_told_record;

/* ---- clients ---- */

extern const struct message_form form_clients, form_own_clients;
/* The map also has the arrays `leases`, `publishes` and `claims`. */
struct client_told {
	uint64_t session, pid, uid, gid;
	const char *name, *command, *socket;
	uint64_t since_ms;
	const uint64_t *requests;
	bool ended;
};
struct lease_told {
	uint64_t lease;
	const struct version_id *version;
	const char *model, *tag, *device;
	uint64_t rank, since_ms;
	const char *address;
	bool parked; /* the holder maps nothing, and serves nobody at its address */
	const uint64_t *revoked_ms, *bytes;
	const bool *freed;
	const char *transport; /* NULL: TRANSPORT_FD */
	uint64_t room; /* bytes that the holder takes on the device besides the version */
	const uint64_t *waiting_ms; /* since when it waits to be awake */
	const uint64_t *missing; /* bytes that the device did not get back when the version left it */
};
struct claim_told {
	const char *model, *tag;
	uint64_t since_ms;
	bool begun;
};
/* The map also has what the user is charged with: a number for each quota, by its name. */
struct user_told {
	uint64_t uid;
};
extern const struct record client_told_record, lease_told_record, claim_told_record, user_told_record;

/* ---- metrics ---- */

extern const struct message_form form_metrics;
/* The most bounds of a histogram. */
#define HISTOGRAM_BOUNDS_MAX 32
/* The map also has the arrays `counters`, `refusals`, `histograms` and `users`. */
struct metrics_result {
	uint64_t since_ms;
};
struct counter_told {
	const char *name, *label;
	uint64_t value;
};
struct refusal_told {
	const char *method, *code;
	uint64_t count;
};
struct histogram_told {
	const char *name, *label;
	struct {
		const uint64_t *items;
		uint32_t count;
	} bounds_us, counts; /* counts: one more than bounds_us, for what was above all of them */
	uint64_t sum_us;
};
struct user_counted {
	const uint64_t *uid;
	uint64_t requests, refused, busy_us, turns, waited;
};
extern const struct record counter_told_record, refusal_told_record, histogram_told_record, user_counted_record;

#endif
