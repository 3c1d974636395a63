/* Messages: events. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_EVENTS_H
#define GPUWM_PROTO_MESSAGES_EVENTS_H

#include "message_form.h"
#include "record.h"

/* What every event has. Its map also has the keys of its kind. */
extern const struct message_form form_event;
struct event_params {
	uint64_t seq;
	const char *kind;
	uint64_t time_ms;
};

extern const struct message_form form_lost;
struct lost_params {
	uint64_t from, to;
};

/* The forms of the events: the kind, and the keys that are the kind's own. Each says which members of its struct it has. */
extern const struct message_form event_ready, event_freed, event_removed; /* version, model, tag */
extern const struct message_form event_failed; /* and error */
extern const struct message_form event_retiring; /* and force_in_ms */
extern const struct message_form event_tainted; /* and device, rank, error */
struct version_event {
	const struct version_id *version;
	const char *model, *tag, *device;
	uint64_t rank;
	const struct error *error;
	const uint64_t *force_in_ms;
};

extern const struct message_form event_demoted, event_promoted;
struct moved_event {
	const struct version_id *version;
	const char *model, *tag, *from, *to, *reason; /* from and to: tiers */
};

extern const struct message_form event_swapped;
struct swapped_event {
	const char *model, *alias;
	const struct version_id *version, *old;
	uint64_t generation;
};

/* To observers and operators only. */
extern const struct message_form event_announced;
struct announced_event {
	const struct version_id *version;
	const char *model, *tag;
	uint64_t lease;
	const char *address, *state; /* address: NULL for none */
};

extern const struct message_form event_revoked;
struct revoked_event {
	const struct version_id *version;
	const char *model, *tag;
	uint64_t session, pid, uid, count;
	struct {
		const uint64_t *items;
		uint32_t count;
	} leases;
	const char *reason;
};

extern const struct message_form event_job;
struct job_event {
	uint64_t job;
	const char *state, *phase;
	uint64_t done, total;
	const char *model, *tag, *note;
};

extern const struct message_form event_peer_lost;
struct peer_lost_event {
	uint64_t session, pid, uid, leases;
};

extern const struct message_form event_device_lost; /* device, error */
extern const struct message_form event_device_back; /* device */
struct device_event {
	const char *device;
	const struct error *error;
};

extern const struct message_form event_region_made; /* region, name, device, uid, bytes */
extern const struct message_form event_region_ended; /* region, name, error */
extern const struct message_form event_region_user_lost; /* region, name, slot, pid, uid, chunks */
struct region_event {
	const struct version_id *region;
	const char *name, *device; /* name: NULL for a region without one */
	uint64_t uid, bytes, slot, pid, chunks; /* chunks: that it held */
	const struct error *error;
};

extern const struct message_form event_draining; /* nothing */

extern const struct message_form event_audit; /* for operators and observers only */
struct audit_event {
	uint64_t uid, pid;
	const char *command, *unit, *method, *model, *tag, *what, *code, *message;
};

/* For users who have awake leases there, operators and observers. */
extern const struct message_form event_wanted;
struct wanted_event {
	const char *device;
	uint64_t bytes; /* that have to come from awake leases */
	const struct version_id *version; /* whose lease waits */
	uint64_t since_ms;
	const uint64_t *until_ms; /* NULL: it waits for ever */
};

/* The form of each kind; NULL ends the array. */
extern const struct message_form *const event_forms[];

/* What an event is about, for readers that do not know its kind. */
extern const struct record event_subject_record;
struct event_subject {
	const char *model, *tag, *alias;
	const struct version_id *version;
};

#endif
