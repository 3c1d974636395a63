/* Messages to subscribers. */
#include "messages.h"

#include "../event_kind.h"

static const struct record_field event_params_rows[] = {
	FIELD_U64(struct event_params, seq),
	FIELD_TEXT(struct event_params, kind, NAME_BYTES_MAX),
	FIELD_U64(struct event_params, time_ms),
};
static const struct record event_params = {RECORD(struct event_params, event_params_rows), .beside = "…"};

const struct message_form form_event = {.name = "event", .params = &event_params};

static const struct record_field lost_params_rows[] = {
	FIELD_U64(struct lost_params, from),
	FIELD_U64(struct lost_params, to),
};
static const struct record lost_params = {RECORD(struct lost_params, lost_params_rows)};

const struct message_form form_lost = {.name = EVENT_LOST, .params = &lost_params};

/* ---- about a version ---- */

#define VERSION_ROWS(S)                                                                                        \
	FIELD_ID(S, version), FIELD_TEXT(S, model, NAME_BYTES_MAX), FIELD_TEXT(S, tag, NAME_BYTES_MAX)

static const struct record_field version_rows[] = {
	VERSION_ROWS(struct version_event),
};
static const struct record version_event = {RECORD(struct version_event, version_rows)};

const struct message_form event_ready = {.name = EVENT_VERSION_READY, .params = &version_event};
const struct message_form event_freed = {.name = EVENT_VERSION_FREED, .params = &version_event};
const struct message_form event_removed = {.name = EVENT_VERSION_REMOVED, .params = &version_event};

static const struct record_field failed_rows[] = {
	VERSION_ROWS(struct version_event),
	FIELD_ERROR(struct version_event, error),
};
static const struct record failed_event = {RECORD(struct version_event, failed_rows)};

const struct message_form event_failed = {.name = EVENT_VERSION_FAILED, .params = &failed_event};

static const struct record_field retiring_rows[] = {
	VERSION_ROWS(struct version_event),
	FIELD_U64_MAYBE(struct version_event, force_in_ms),
};
static const struct record retiring_event = {RECORD(struct version_event, retiring_rows)};

const struct message_form event_retiring = {.name = EVENT_VERSION_RETIRING, .params = &retiring_event};

static const struct record_field tainted_rows[] = {
	VERSION_ROWS(struct version_event),
	FIELD_TEXT(struct version_event, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct version_event, rank),
	FIELD_ERROR(struct version_event, error),
};
static const struct record tainted_event = {RECORD(struct version_event, tainted_rows)};

const struct message_form event_tainted = {.name = EVENT_TAINTED, .params = &tainted_event};

static const struct record_field moved_rows[] = {
	VERSION_ROWS(struct moved_event),
	FIELD_TEXT(struct moved_event, from, NAME_BYTES_MAX),
	FIELD_TEXT(struct moved_event, to, NAME_BYTES_MAX),
	FIELD_TEXT(struct moved_event, reason, TEXT_BYTES_MAX),
};
static const struct record moved_event = {RECORD(struct moved_event, moved_rows)};

const struct message_form event_demoted = {.name = EVENT_DEMOTED, .params = &moved_event};
const struct message_form event_promoted = {.name = EVENT_PROMOTED, .params = &moved_event};

static const struct record_field swapped_rows[] = {
	FIELD_TEXT(struct swapped_event, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct swapped_event, alias, NAME_BYTES_MAX),
	FIELD_ID_MAYBE(struct swapped_event, version),
	FIELD_ID_MAYBE(struct swapped_event, old),
	FIELD_U64(struct swapped_event, generation),
};
static const struct record swapped_event = {RECORD(struct swapped_event, swapped_rows)};

const struct message_form event_swapped = {.name = EVENT_SWAPPED, .params = &swapped_event};

static const struct record_field announced_rows[] = {
	VERSION_ROWS(struct announced_event),
	FIELD_U64(struct announced_event, lease),
	FIELD_TEXT_MAYBE(struct announced_event, address, ADDRESS_BYTES_MAX),
	FIELD_TEXT(struct announced_event, state, NAME_BYTES_MAX),
};
static const struct record announced_event = {RECORD(struct announced_event, announced_rows)};

const struct message_form event_announced = {.name = EVENT_ANNOUNCED, .params = &announced_event};

static const struct record_field revoked_rows[] = {
	VERSION_ROWS(struct revoked_event),
	FIELD_U64(struct revoked_event, session),
	FIELD_U64(struct revoked_event, pid),
	FIELD_U64(struct revoked_event, uid),
	FIELD_U64(struct revoked_event, count),
	FIELD_U64S(struct revoked_event, leases, REVOKED_PER_EVENT),
	FIELD_TEXT(struct revoked_event, reason, TEXT_BYTES_MAX),
};
static const struct record revoked_event = {RECORD(struct revoked_event, revoked_rows)};

const struct message_form event_revoked = {.name = EVENT_REVOKED, .params = &revoked_event};

/* ---- about others ---- */

static const struct record_field job_rows[] = {
	FIELD_U64(struct job_event, job),
	FIELD_TEXT(struct job_event, state, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_event, phase, PHASE_BYTES_MAX),
	FIELD_U64(struct job_event, done),
	FIELD_U64(struct job_event, total),
	FIELD_TEXT(struct job_event, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_event, tag, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct job_event, note, TEXT_BYTES_MAX),
};
static const struct record job_event = {RECORD(struct job_event, job_rows)};

const struct message_form event_job = {.name = EVENT_JOB, .params = &job_event};

static const struct record_field peer_lost_rows[] = {
	FIELD_U64(struct peer_lost_event, session),
	FIELD_U64(struct peer_lost_event, pid),
	FIELD_U64(struct peer_lost_event, uid),
	FIELD_U64(struct peer_lost_event, leases),
};
static const struct record peer_lost_event = {RECORD(struct peer_lost_event, peer_lost_rows)};

const struct message_form event_peer_lost = {.name = EVENT_PEER_LOST, .params = &peer_lost_event};

static const struct record_field device_lost_rows[] = {
	FIELD_TEXT(struct device_event, device, DEVICE_BYTES_MAX),
	FIELD_ERROR(struct device_event, error),
};
static const struct record device_lost_event = {RECORD(struct device_event, device_lost_rows)};

const struct message_form event_device_lost = {.name = EVENT_DEVICE_LOST, .params = &device_lost_event};

static const struct record_field device_back_rows[] = {
	FIELD_TEXT(struct device_event, device, DEVICE_BYTES_MAX),
};
static const struct record device_back_event = {RECORD(struct device_event, device_back_rows)};

const struct message_form event_device_back = {.name = EVENT_DEVICE_BACK, .params = &device_back_event};

/* ---- room ---- */

static const struct record_field wanted_rows[] = {
	FIELD_TEXT(struct wanted_event, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct wanted_event, bytes),
	FIELD_ID(struct wanted_event, version),
	FIELD_U64(struct wanted_event, since_ms),
	FIELD_U64_MAYBE(struct wanted_event, until_ms),
};
static const struct record wanted_event = {RECORD(struct wanted_event, wanted_rows)};

const struct message_form event_wanted = {.name = EVENT_WANTED, .params = &wanted_event};

/* ---- regions ---- */

static const struct record_field region_made_rows[] = {
	FIELD_ID(struct region_event, region),
	FIELD_TEXT_MAYBE(struct region_event, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_event, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct region_event, uid),
	FIELD_U64(struct region_event, bytes),
};
static const struct record region_made_event = {RECORD(struct region_event, region_made_rows)};

const struct message_form event_region_made = {.name = EVENT_REGION_MADE, .params = &region_made_event};

static const struct record_field region_ended_rows[] = {
	FIELD_ID(struct region_event, region),
	FIELD_TEXT_MAYBE(struct region_event, name, NAME_BYTES_MAX),
	FIELD_ERROR(struct region_event, error),
};
static const struct record region_ended_event = {RECORD(struct region_event, region_ended_rows)};

const struct message_form event_region_ended = {.name = EVENT_REGION_ENDED, .params = &region_ended_event};

static const struct record_field region_user_lost_rows[] = {
	FIELD_ID(struct region_event, region), FIELD_TEXT_MAYBE(struct region_event, name, NAME_BYTES_MAX),
	FIELD_U64(struct region_event, slot),  FIELD_U64(struct region_event, pid),
	FIELD_U64(struct region_event, uid),   FIELD_U64(struct region_event, chunks),
};
static const struct record region_user_lost_event = {RECORD(struct region_event, region_user_lost_rows)};

const struct message_form event_region_user_lost = {.name = EVENT_REGION_USER_LOST,
						    .params = &region_user_lost_event};

const struct message_form event_draining = {.name = EVENT_DRAINING, .params = &record_nothing};

static const struct record_field audit_rows[] = {
	FIELD_U64(struct audit_event, uid),
	FIELD_U64(struct audit_event, pid),
	FIELD_TEXT(struct audit_event, command, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct audit_event, unit, NAME_BYTES_MAX),
	FIELD_TEXT(struct audit_event, method, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct audit_event, model, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct audit_event, tag, NAME_BYTES_MAX),
	FIELD_TEXT(struct audit_event, what, TEXT_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct audit_event, code, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct audit_event, message, TEXT_BYTES_MAX),
};
static const struct record audit_event = {RECORD(struct audit_event, audit_rows)};

const struct message_form event_audit = {.name = EVENT_AUDIT, .params = &audit_event};

/* ---- all ---- */

const struct message_form *const event_forms[] = {
	&event_ready,
	&event_failed,
	&event_swapped,
	&event_retiring,
	&event_freed,
	&event_removed,
	&event_announced,
	&event_revoked,
	&event_tainted,
	&event_demoted,
	&event_promoted,
	&event_job,
	&event_wanted,
	&event_peer_lost,
	&event_device_lost,
	&event_device_back,
	&event_region_made,
	&event_region_ended,
	&event_region_user_lost,
	&event_draining,
	&event_audit,
	NULL, /* the end */
};

static const struct record_field event_subject_rows[] = {
	FIELD_TEXT_OR(struct event_subject, model, NAME_BYTES_MAX, ""),
	FIELD_TEXT_OR(struct event_subject, tag, NAME_BYTES_MAX, ""),
	FIELD_TEXT_OR(struct event_subject, alias, NAME_BYTES_MAX, ""),
	FIELD_ID_MAYBE(struct event_subject, version),
};
const struct record event_subject_record = {RECORD(struct event_subject, event_subject_rows)};
