/* Messages that ask about all that there is. */
#include "messages.h"

/* ---- list ---- */

static const struct record_field list_params_rows[] = {
	FIELD_TEXT_MAYBE(struct list_params, model, NAME_BYTES_MAX),
};
static const struct record list_params = {RECORD(struct list_params, list_params_rows)};

static const struct record_field version_named_rows[] = {
	FIELD_ID(struct version_named, version),
	FIELD_TEXT(struct version_named, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct version_named, tag, NAME_BYTES_MAX),
};
static const struct record version_named = {RECORD(struct version_named, version_named_rows)};

static const struct record_field part_listed_rows[] = {
	FIELD_U64(struct part_listed, rank),
	FIELD_TEXT(struct part_listed, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct part_listed, state, NAME_BYTES_MAX),
	FIELD_U64(struct part_listed, bytes),
	FIELD_U64(struct part_listed, index_bytes),
	FIELD_U64(struct part_listed, segments),
	FIELD_U64_MAYBE(struct part_listed, shared_bytes),
};
const struct record part_listed_record = {RECORD(struct part_listed, part_listed_rows)};

static const struct record_field version_listed_rows[] = {
	FIELD_ID(struct version_listed, version),
	FIELD_TEXT(struct version_listed, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct version_listed, tag, NAME_BYTES_MAX),
	FIELD_TEXT(struct version_listed, state, NAME_BYTES_MAX),
	FIELD_U64(struct version_listed, created_ms),
	FIELD_U64_MAYBE(struct version_listed, ready_ms),
	FIELD_U64_MAYBE(struct version_listed, force_at_ms),
	FIELD_U64_MAYBE(struct version_listed, expire_at_ms),
	FIELD_BOOL(struct version_listed, cached),
	FIELD_ID_MAYBE(struct version_listed, companion_of),
	FIELD_U64(struct version_listed, world),
	FIELD_U64(struct version_listed, bytes),
	FIELD_U64(struct version_listed, tensors),
	FIELD_ID_MAYBE(struct version_listed, layout),
	FIELD_ID_MAYBE(struct version_listed, content),
	FIELD_U64(struct version_listed, owner_uid),
	FIELD_BOOL(struct version_listed, by_operator),
	FIELD_U64(struct version_listed, leases),
	FIELD_TEXTS(struct version_listed, pins, PINS_PER_VERSION_MAX, NAME_BYTES_MAX),
	FIELD_ERROR_MAYBE(struct version_listed, error),
	FIELD_ERROR_MAYBE(struct version_listed, tainted),
	FIELD_TEXT_MAYBE(struct version_listed, tier, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct version_listed, moving, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct version_listed, source, PATH_BYTES_MAX),
	FIELD_U64_MAYBE(struct version_listed, last_used_ms),
	FIELD_ERROR_MAYBE(struct version_listed, promotion_error),
	FIELD_BOOL_OR(struct version_listed, described, false),
	FIELD_U64_MAYBE(struct version_listed, host_copy_bytes),
	FIELD_U64_MAYBE(struct version_listed, shared_bytes),
	FIELD_MAPS_MAYBE(struct version_listed, shared_with, SHARERS_TOLD_MAX, struct version_named,
			 &version_named),
	FIELD_LOOP("parts", &part_listed_record),
};
const struct record version_listed_record = {RECORD(struct version_listed, version_listed_rows)};

static const struct record_field model_listed_rows[] = {
	FIELD_TEXT(struct model_listed, model, NAME_BYTES_MAX),
	FIELD_U64(struct model_listed, owner_uid),
	FIELD_BOOL(struct model_listed, by_operator),
};
const struct record model_listed_record = {RECORD(struct model_listed, model_listed_rows)};

static const struct record_field alias_listed_rows[] = {
	FIELD_TEXT(struct alias_listed, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct alias_listed, alias, NAME_BYTES_MAX),
	FIELD_ID(struct alias_listed, version),
	FIELD_U64(struct alias_listed, generation),
	FIELD_ID_MAYBE(struct alias_listed, before),
};
const struct record alias_listed_record = {RECORD(struct alias_listed, alias_listed_rows)};

static const struct record_field claim_listed_rows[] = {
	FIELD_TEXT(struct claim_listed, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct claim_listed, tag, NAME_BYTES_MAX),
	FIELD_U64(struct claim_listed, uid),
	FIELD_U64_MAYBE(struct claim_listed, session),
	FIELD_U64_MAYBE(struct claim_listed, pid),
	FIELD_TEXT_MAYBE(struct claim_listed, command, NAME_BYTES_MAX),
	FIELD_U64(struct claim_listed, since_ms),
	FIELD_BOOL(struct claim_listed, begun),
};
const struct record claim_listed_record = {RECORD(struct claim_listed, claim_listed_rows)};

static const struct record_field copy_listed_rows[] = {
	FIELD_ID(struct copy_listed, version),
	FIELD_TEXT(struct copy_listed, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct copy_listed, tag, NAME_BYTES_MAX),
	FIELD_U64(struct copy_listed, rank),
	FIELD_TEXT(struct copy_listed, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct copy_listed, state, NAME_BYTES_MAX),
	FIELD_U64(struct copy_listed, uid),
	FIELD_U64(struct copy_listed, bytes),
	FIELD_U64(struct copy_listed, leases),
	FIELD_U64(struct copy_listed, since_ms),
	FIELD_U64_MAYBE(struct copy_listed, pid),
};
const struct record copy_listed_record = {RECORD(struct copy_listed, copy_listed_rows)};

static const struct record_field list_result_rows[] = {
	FIELD_U64(struct list_result, seq),         FIELD_LOOP("versions", &version_listed_record),
	FIELD_LOOP("models", &model_listed_record), FIELD_LOOP("aliases", &alias_listed_record),
	FIELD_LOOP("claims", &claim_listed_record), FIELD_LOOP_MAYBE("copies", &copy_listed_record),
};
static const struct record list_result = {RECORD(struct list_result, list_result_rows)};

const struct message_form form_list = {
	.name = "list", .params = &list_params, .result = &list_result, .again = true};

/* ---- status ---- */

static const struct record_field scrub_told_rows[] = {
	FIELD_U64(struct scrub_told, passes),
	FIELD_U64_MAYBE(struct scrub_told, last_ms),
	FIELD_BOOL(struct scrub_told, running),
	FIELD_U64(struct scrub_told, skipped),
};
static const struct record scrub_told = {RECORD(struct scrub_told, scrub_told_rows)};

static const struct record_field tiers_told_rows[] = {
	FIELD_TEXT_MAYBE(struct tiers_told, folder, PATH_BYTES_MAX),
	FIELD_ERROR_MAYBE(struct tiers_told, error),
	FIELD_U64(struct tiers_told, described),
	FIELD_BOOL(struct tiers_told, pending),
	FIELD_U64(struct tiers_told, found),
	FIELD_U64(struct tiers_told, to_restore),
	FIELD_U64(struct tiers_told, restored),
	FIELD_U64(struct tiers_told, not_restored),
};
static const struct record tiers_told = {RECORD(struct tiers_told, tiers_told_rows)};

static const struct record_field context_told_rows[] = {
	FIELD_TEXT(struct context_told, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct context_told, bytes),
};
const struct record context_told_record = {RECORD(struct context_told, context_told_rows)};

static const struct record_field keeping_told_rows[] = {
	FIELD_U64(struct keeping_told, pid),           FIELD_BOOL(struct keeping_told, ready),
	FIELD_U64_MAYBE(struct keeping_told, left_ms), FIELD_BOOL(struct keeping_told, checks),
	FIELD_U64_MAYBE(struct keeping_told, uid),     FIELD_LOOP("contexts", &context_told_record),
};
const struct record keeping_told_record = {RECORD(struct keeping_told, keeping_told_rows)};

static const struct record_field leaves_next_rows[] = {
	FIELD_TEXT(struct leaves_next_told, device, DEVICE_BYTES_MAX),
	FIELD_ID(struct leaves_next_told, version),
	FIELD_TEXT(struct leaves_next_told, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct leaves_next_told, tag, NAME_BYTES_MAX),
	FIELD_U64(struct leaves_next_told, bytes),
	FIELD_TEXT(struct leaves_next_told, to, NAME_BYTES_MAX),
};
const struct record leaves_next_record = {RECORD(struct leaves_next_told, leaves_next_rows)};

static const struct record_field root_told_rows[] = {
	FIELD_TEXT(struct root_told, root, PATH_BYTES_MAX),
	FIELD_ERROR_MAYBE(struct root_told, error),
};
const struct record root_told_record = {RECORD(struct root_told, root_told_rows)};

static const struct record_field roots_told_rows[] = {
	FIELD_U64(struct roots_told, pid),
	FIELD_U64(struct roots_told, age_ms),
	FIELD_MAPS(struct roots_told, roots, ROOTS_MAX, struct root_told, &root_told_record),
};
static const struct record roots_told = {RECORD(struct roots_told, roots_told_rows)};

static const struct record_field status_result_rows[] = {
	FIELD_TEXT(struct status_result, server, NAME_BYTES_MAX),
	FIELD_ID(struct status_result, instance),
	FIELD_U64(struct status_result, pid),
	FIELD_U64(struct status_result, uptime_ms),
	FIELD_BOOL(struct status_result, draining),
	FIELD_U64(struct status_result, seq),
	FIELD_U64(struct status_result, sessions),
	FIELD_U64(struct status_result, leases),
	FIELD_U64(struct status_result, revoked),
	FIELD_U64(struct status_result, still_mapped),
	FIELD_U64(struct status_result, versions),
	FIELD_U64(struct status_result, nameless),
	FIELD_U64_MAYBE(struct status_result, demoted),
	FIELD_U64(struct status_result, aliases),
	FIELD_U64(struct status_result, pins),
	FIELD_U64(struct status_result, publishes),
	FIELD_U64(struct status_result, claims),
	FIELD_U64(struct status_result, regions),
	FIELD_U64(struct status_result, region_users),
	FIELD_U64(struct status_result, region_bytes),
	FIELD_U64(struct status_result, waiting),
	FIELD_U64(struct status_result, jobs_running),
	FIELD_U64_MAYBE(struct status_result, jobs_queued),
	FIELD_U64(struct status_result, loaders),
	FIELD_BOOL(struct status_result, standby),
	FIELD_U64(struct status_result, fds),
	FIELD_U64(struct status_result, rss),
	FIELD_U64(struct status_result, requests),
	FIELD_U64(struct status_result, refused),
	FIELD_U64(struct status_result, bytes),
	FIELD_U64(struct status_result, shared_bytes),
	FIELD_U64(struct status_result, index_bytes),
	FIELD_U64(struct status_result, segments),
	FIELD_ID(struct status_result, ledger),
	FIELD_U64(struct status_result, epoch),
	FIELD_BOOL(struct status_result, kept),
	FIELD_U64(struct status_result, adopted),
	FIELD_U64(struct status_result, lost),
	FIELD_U64(struct status_result, unread),
	FIELD_U64(struct status_result, grace_ms),
	FIELD_U64_OR(struct status_result, awaited, 0, UINT64_MAX),
	FIELD_ERROR_MAYBE(struct status_result, locked),
	FIELD_MAPS(struct status_result, devices, UINT32_MAX, struct device_told, &device_told_record),
	FIELD_TEXTS(struct status_result, roots, ROOTS_MAX, PATH_BYTES_MAX),
	FIELD_MAP(struct status_result, scrub, struct scrub_told, &scrub_told),
	FIELD_MAP_MAYBE(struct status_result, tiers, struct tiers_told, &tiers_told),
	FIELD_U64_MAYBE(struct status_result, copies),
	FIELD_U64_MAYBE(struct status_result, copy_bytes),
	FIELD_TEXT_MAYBE(struct status_result, config, PATH_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct status_result, program, PATH_BYTES_MAX),
	FIELD_BOOL_MAYBE(struct status_result, replaced),
	FIELD_U64_MAYBE(struct status_result, standby_pid),
	FIELD_MAP_MAYBE(struct status_result, roots_judged, struct roots_told, &roots_told),
	FIELD_LOOP("keeping", &keeping_told_record),
	FIELD_LOOP("leaves_next", &leaves_next_record),
};
static const struct record status_result = {
	RECORD(struct status_result, status_result_rows),
	.beside = "limits: limits",
};

const struct message_form form_status = {
	.name = "status", .params = &record_nothing, .result = &status_result, .again = true};

/* ---- clients ---- */

static const struct record_field lease_told_rows[] = {
	FIELD_U64(struct lease_told, lease),
	FIELD_ID(struct lease_told, version),
	FIELD_TEXT(struct lease_told, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct lease_told, tag, NAME_BYTES_MAX),
	FIELD_TEXT(struct lease_told, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct lease_told, rank),
	FIELD_U64(struct lease_told, since_ms),
	FIELD_TEXT_MAYBE(struct lease_told, address, ADDRESS_BYTES_MAX),
	FIELD_BOOL_OR(struct lease_told, parked, false),
	FIELD_U64_MAYBE(struct lease_told, revoked_ms),
	FIELD_U64_MAYBE(struct lease_told, bytes),
	FIELD_BOOL_MAYBE(struct lease_told, freed),
	FIELD_TEXT_MAYBE(struct lease_told, transport, TRANSPORT_BYTES_MAX),
	FIELD_U64_OR(struct lease_told, room, 0, UINT64_MAX),
	FIELD_U64_MAYBE(struct lease_told, waiting_ms),
	FIELD_U64_MAYBE(struct lease_told, missing),
};
const struct record lease_told_record = {RECORD(struct lease_told, lease_told_rows)};

static const struct record_field claim_told_rows[] = {
	FIELD_TEXT(struct claim_told, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct claim_told, tag, NAME_BYTES_MAX),
	FIELD_U64(struct claim_told, since_ms),
	FIELD_BOOL(struct claim_told, begun),
};
const struct record claim_told_record = {RECORD(struct claim_told, claim_told_rows)};

static const struct record_field client_told_rows[] = {
	FIELD_U64(struct client_told, session),
	FIELD_U64(struct client_told, pid),
	FIELD_U64(struct client_told, uid),
	FIELD_U64(struct client_told, gid),
	FIELD_TEXT(struct client_told, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct client_told, command, NAME_BYTES_MAX),
	FIELD_TEXT(struct client_told, socket, NAME_BYTES_MAX),
	FIELD_U64(struct client_told, since_ms),
	FIELD_U64_MAYBE(struct client_told, requests),
	FIELD_BOOL_OR(struct client_told, ended, false),
	FIELD_LOOP("leases", &lease_told_record),
	FIELD_LOOP_OF("publishes", RECORD_MAYBE, RECORD_ID),
	FIELD_LOOP_MAYBE("claims", &claim_told_record),
};
const struct record client_told_record = {RECORD(struct client_told, client_told_rows)};

static const struct record_field user_told_rows[] = {
	FIELD_U64(struct user_told, uid),
};
const struct record user_told_record = {
	RECORD(struct user_told, user_told_rows),
	.beside =
		"sessions, leases, requests, publishes, claims, versions, nameless, regions, copies, bytes, fds, index_bytes",
};

static const struct record_field clients_result_rows[] = {
	FIELD_LOOP("clients", &client_told_record),
	FIELD_LOOP("users", &user_told_record),
};
static const struct record clients_result = {.fields = clients_result_rows, .field_count = 2};

const struct message_form form_clients = {
	.name = "clients", .params = &record_nothing, .result = &clients_result, .again = true};
const struct message_form form_own_clients = {
	.name = "own_clients", .params = &record_nothing, .result = &clients_result, .again = true};

/* ---- metrics ---- */

static const struct record_field counter_told_rows[] = {
	FIELD_TEXT(struct counter_told, name, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct counter_told, label, NAME_BYTES_MAX),
	FIELD_U64(struct counter_told, value),
};
const struct record counter_told_record = {RECORD(struct counter_told, counter_told_rows)};

static const struct record_field refusal_told_rows[] = {
	FIELD_TEXT(struct refusal_told, method, NAME_BYTES_MAX),
	FIELD_TEXT(struct refusal_told, code, NAME_BYTES_MAX),
	FIELD_U64(struct refusal_told, count),
};
const struct record refusal_told_record = {RECORD(struct refusal_told, refusal_told_rows)};

static const struct record_field histogram_told_rows[] = {
	FIELD_TEXT(struct histogram_told, name, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct histogram_told, label, NAME_BYTES_MAX),
	FIELD_U64S(struct histogram_told, bounds_us, HISTOGRAM_BOUNDS_MAX),
	FIELD_U64S(struct histogram_told, counts, HISTOGRAM_BOUNDS_MAX + 1),
	FIELD_U64(struct histogram_told, sum_us),
};
const struct record histogram_told_record = {RECORD(struct histogram_told, histogram_told_rows)};

static const struct record_field user_counted_rows[] = {
	FIELD_U64_MAYBE(struct user_counted, uid), FIELD_U64(struct user_counted, requests),
	FIELD_U64(struct user_counted, refused),   FIELD_U64(struct user_counted, busy_us),
	FIELD_U64(struct user_counted, turns),     FIELD_U64(struct user_counted, waited),
};
const struct record user_counted_record = {RECORD(struct user_counted, user_counted_rows)};

static const struct record_field metrics_result_rows[] = {
	FIELD_U64(struct metrics_result, since_ms),   FIELD_LOOP("counters", &counter_told_record),
	FIELD_LOOP("refusals", &refusal_told_record), FIELD_LOOP("histograms", &histogram_told_record),
	FIELD_LOOP("users", &user_counted_record),
};
static const struct record metrics_result = {RECORD(struct metrics_result, metrics_result_rows)};

const struct message_form form_metrics = {
	.name = "metrics", .params = &record_nothing, .result = &metrics_result, .again = true};
