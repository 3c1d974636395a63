/* The messages: for each method of docs/protocol.md a struct of its parameters and a struct of its
 * result, and their records, which both sides read and write by. record.h says how a struct holds
 * what a map says.
 *
 * A new key is a member of its struct and a row in messages_*.c. A key that is added to a result must
 * be optional, since an older gpuwmd does not send it. */
#ifndef GPUWM_PROTO_MESSAGES_H
#define GPUWM_PROTO_MESSAGES_H

#include "key.h"
#include "owner_wish.h"
#include "record.h"
#include "reference.h"

/* The form of a method or of a notification: its name, and the records of its maps. */
struct message_form {
	const char *name;
	const struct record *params;
	const struct record *result; /* NULL: of a notification */
};

/* Every form; NULL ends the array. */
extern const struct message_form *const message_forms[];

/* {} */
extern const struct record record_nothing;
/* A result that gpuwmd writes by hand, in loops over all that it has. The library tells it to programs as JSON. */
extern const struct record record_by_hand;

/* Each of these makes a writer, of at most a packet, and writes a whole message with params, a
 * struct of the form's params. */
void message_write_request(struct message_writer *w, uint64_t id, const struct message_form *form,
			   const void *params);
void message_write_notification(struct message_writer *w, const struct message_form *form, const void *params);

/* ---- messages_session.c: the session, and questions ---- */

extern const struct message_form form_hello;
struct hello_params {
	uint64_t protocol_min, protocol_max;
	const char *client;
};
struct device_told {
	const char *device, *kind, *name;
	uint64_t total;
	const uint64_t *free, *free_age_ms;
	uint64_t budget, used, granularity, context, contexts, still_mapped;
	const struct error *lost;
};
extern const struct record device_told_record;
/* And `limits`, which the library does not read. */
struct hello_result {
	uint64_t protocol;
	const struct version_id *instance, *ledger;
	uint64_t epoch;
	const char *server;
	uint64_t pid;
	struct {
		const char *const *items;
		uint32_t count;
	} roles;
	struct {
		const struct device_told *items;
		uint32_t count;
	} devices;
};

extern const struct message_form form_ping;

extern const struct message_form form_subscribe;
struct subscribe_params {
	const uint64_t *after;
};
struct subscribe_result {
	uint64_t seq;
};

extern const struct message_form form_list, form_status, form_clients;
struct list_params {
	const char *model;
};

/* ---- messages_lease.c: leases and claims ---- */

extern const struct message_form form_get_handles;
struct get_handles_params {
	struct reference ref;
	const char *device;
	uint64_t rank;
	int64_t wait_ms;
	bool look;
	struct owner_wish owner;
};
/* And the part. */
struct get_handles_result {
	uint64_t lease;
	const struct version_id *version;
	const char *model, *tag, *device;
	uint64_t rank, world, generation;
};

extern const struct message_form form_release;
struct release_params {
	uint64_t lease;
};

extern const struct message_form form_resume;
struct resume_lease {
	uint64_t lease;
	const struct version_id *version;
	const char *device;
	uint64_t rank;
};
struct resume_params {
	struct {
		const struct resume_lease *items;
		const struct error *const *errors;
		uint32_t count;
	} leases;
	struct {
		const char *const *items;
		const struct error *const *errors;
		uint32_t count;
	} claims;
};
struct resumed_lease {
	const uint64_t *lease;
	const struct error *error;
	bool revoked;
};
struct resumed_claim {
	const struct error *error;
};
extern const struct record resumed_lease_record, resumed_claim_record;
struct resume_result {
	struct {
		const struct resumed_lease *items;
		uint32_t count;
	} leases;
	struct {
		const struct resumed_claim *items;
		uint32_t count;
	} claims;
	uint64_t grace_ms;
};

/* The result is this one, or that of get_handles. */
extern const struct message_form form_claim;
struct claim_params {
	struct reference name;
	const char *device;
	uint64_t rank;
	int64_t wait_ms;
	struct owner_wish owner;
};
struct claim_result {
	bool claimed;
};

extern const struct message_form form_claim_give_up;
struct claim_give_up_params {
	struct reference name;
};

extern const struct message_form form_revoked;
struct revoked_params {
	const char *reason;
	struct {
		const uint64_t *items;
		uint32_t count;
	} leases;
};

/* ---- messages_publish.c: versions that programs make ---- */

extern const struct message_form form_publish_begin;
struct join_params {
	struct {
		const uint32_t *items;
		uint32_t count;
	} uids, gids;
};
struct publish_begin_params {
	struct reference name;
	const char *device;
	uint64_t rank, world, bytes;
	const struct version_id *publish;
	const struct join_params *join;
	const char *alias;
};
struct publish_begin_result {
	const struct version_id *publish, *version;
	const uint64_t *checker, *alive_ms;
};

extern const struct message_form form_publish_commit;
struct publish_commit_params {
	const struct version_id *publish;
	uint64_t rank;
	const char *device;
	const struct digest *content;
};
struct publish_commit_result {
	const struct version_id *version;
	const char *state;
	const struct error *alias_error;
};

extern const struct message_form form_publish_abort;
struct publish_abort_params {
	const struct version_id *publish;
	const char *reason;
};

/* ---- messages_jobs.c: loads and verifies ---- */

extern const struct message_form form_load;
struct load_params {
	const char *source;
	struct reference name;
	struct {
		const char *const *items;
		uint32_t count;
	} devices;
	const char *alias;
	const struct version_id *expect;
	bool retire_old, dry_run;
	struct {
		const struct key_pair *items;
		uint32_t count;
	} key;
	const char *share_with; /* a reference */
	const uint64_t *segment_bytes;
};
struct load_result {
	uint64_t job;
};

extern const struct message_form form_verify;
struct verify_params {
	struct reference ref;
	const char *device;
	const uint64_t *rank;
};
struct verify_result {
	struct {
		const uint64_t *items;
		uint32_t count;
	} jobs;
};

extern const struct message_form form_jobs;
struct jobs_params {
	const uint64_t *job;
	int64_t wait_ms;
};

extern const struct message_form form_cancel;
struct cancel_params {
	uint64_t job;
};

/* ---- messages_operate.c: what operators ask for ---- */

extern const struct message_form form_pin_version, form_unpin_version;
struct pin_params {
	struct reference ref;
	const char *pin;
};
/* pin_version, unpin_version, remove */
struct version_result {
	const struct version_id *version;
};

extern const struct message_form form_hot_swap;
struct hot_swap_params {
	const char *model, *alias, *to;
	const struct version_id *expect;
	bool retire_old;
};
struct hot_swap_result {
	const struct version_id *version, *old;
	uint64_t generation;
	const char *old_state;
	const struct error *retire_error;
};

extern const struct message_form form_retire;
struct retire_params {
	struct reference ref;
	int64_t wait_ms;
	bool force;
	uint64_t after_ms;
};
struct retire_result {
	const struct version_id *version;
	const char *state;
	uint64_t leases, pins;
};

extern const struct message_form form_remove;
struct remove_params {
	struct reference ref;
};

extern const struct message_form form_kick;
struct kick_params {
	const uint64_t *lease, *pid, *uid;
};
struct kicked {
	uint64_t lease, session, pid, uid;
	const char *command;
	const struct version_id *version;
	const char *model, *tag, *device;
	uint64_t rank;
};
extern const struct record kicked_record;
struct kick_result {
	struct {
		const struct kicked *items;
		uint32_t count;
	} leases;
};

extern const struct message_form form_drain;
struct drain_params {
	const char *device;
};
struct still_held {
	const struct version_id *version;
	const char *model, *tag;
	uint64_t leases, pins;
};
extern const struct record still_held_record;
struct drain_result {
	struct {
		const struct still_held *items;
		uint32_t count;
	} left;
};

extern const struct message_form form_reload;
struct reload_result {
	const char *file;
};

/* ---- messages_loader.c: gpuwmd and its loaders ---- */

/* The job that is a load. Beside it come its number and its kind. */
extern const struct message_form form_job_load;
struct job_load_params {
	const char *source, *model, *tag;
	struct {
		const char *const *items;
		uint32_t count;
	} devices, roots;
	const char *alias;
	bool dry_run, keep;
	struct {
		const struct key_pair *items;
		uint32_t count;
	} key;
	const uint64_t *segment_bytes;
	const char *share_with; /* model@tag */
};

extern const struct message_form form_warm;
struct warm_params {
	struct {
		const char *const *items;
		uint32_t count;
	} devices;
};

/* What a loader knows of a device. */
struct device_found {
	const char *device, *kind, *name;
	uint64_t total;
	const uint64_t *free;
	uint64_t granularity, context;
};
/* A device that gpuwmd knows. */
struct device_known {
	const char *device;
	bool lost;
};

extern const struct message_form form_loader_hello;
struct loader_hello_params {
	uint64_t protocol_min, protocol_max;
	const uint64_t *pid, *pidfd;
	struct {
		const struct device_found *items;
		uint32_t count;
	} devices;
};
struct loader_hello_result {
	uint64_t protocol;
	const struct version_id *instance;
	struct {
		const struct device_known *items;
		uint32_t count;
	} devices;
};

extern const struct message_form form_report;
struct report_params {
	struct {
		const struct device_known *items;
		uint32_t count;
	} devices;
};

extern const struct message_form form_loader_devices;
struct device_found_lost {
	const char *device;
	const struct error *error;
};
struct loader_devices_params {
	struct {
		const struct device_found *items;
		uint32_t count;
	} devices;
	struct {
		const struct device_found_lost *items;
		uint32_t count;
	} lost;
	struct {
		const char *const *items;
		uint32_t count;
	} back;
};

extern const struct message_form form_loader_warm;
struct loader_warm_params {
	const struct error *error;
};

extern const struct message_form form_loader_progress;
struct loader_progress_params {
	const char *phase;
	uint64_t done, total;
	const char *note;
};

extern const struct message_form form_loader_done;
struct plan_device {
	const char *device;
	uint64_t bytes, segments;
};
struct plan_params {
	uint64_t tensors, files, bytes, cached;
	struct {
		const struct plan_device *items;
		uint32_t count;
	} devices;
};
struct loader_done_params {
	const struct error *error;
	const uint64_t *segment; /* the number of the segment that is damaged */
	bool keeps;
	const struct plan_params *plan;
};
struct loader_done_result {
	bool stay;
};

/* The loader writes its params by hand, with part_write, and gpuwmd reads them by hand, with part_read. */
extern const struct message_form form_loader_checked;

/* The result is a part: gpuwmd writes it with part_write, the loader reads it with part_read. */
extern const struct message_form form_loader_resident;
struct loader_resident_params {
	uint64_t rank;
	const char *device;
};

#endif
