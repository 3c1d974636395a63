/* Messages about the session itself. */
#include "messages.h"

/* ---- hello, ping ---- */

static const struct record_field hello_params_rows[] = {
	FIELD_U64(struct hello_params, protocol_min),
	FIELD_U64(struct hello_params, protocol_max),
	FIELD_TEXT(struct hello_params, client, NAME_BYTES_MAX),
};
static const struct record hello_params = {RECORD(struct hello_params, hello_params_rows)};

static const struct record_field device_told_rows[] = {
	FIELD_TEXT(struct device_told, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct device_told, kind, NAME_BYTES_MAX),
	FIELD_TEXT(struct device_told, name, TEXT_BYTES_MAX),
	FIELD_U64(struct device_told, total),
	FIELD_U64_MAYBE(struct device_told, free),
	FIELD_U64_MAYBE(struct device_told, free_age_ms),
	FIELD_U64(struct device_told, budget),
	FIELD_U64(struct device_told, used),
	FIELD_U64(struct device_told, granularity),
	FIELD_U64(struct device_told, context),
	FIELD_U64(struct device_told, contexts),
	FIELD_U64(struct device_told, still_mapped),
	FIELD_U64_OR(struct device_told, rooms, 0, UINT64_MAX),
	FIELD_ERROR_MAYBE(struct device_told, lost),
};
const struct record device_told_record = {.name = "device", RECORD(struct device_told, device_told_rows)};

static const struct record_field limits_told_rows[] = {
	FIELD_U64(struct limits_told, packet_bytes),
	FIELD_U64(struct limits_told, packet_fds),
	FIELD_U64(struct limits_told, part_segments),
	FIELD_U64(struct limits_told, parts_per_version),
	FIELD_U64(struct limits_told, versions),
	FIELD_U64(struct limits_told, store_fds),
	FIELD_U64(struct limits_told, requests_per_session),
	FIELD_U64(struct limits_told, sessions),
	FIELD_U64(struct limits_told, connects_per_second),
	FIELD_U64(struct limits_told, loaders),
};
const struct record limits_told_record = {
	.name = "limits",
	RECORD(struct limits_told, limits_told_rows),
	.beside =
		"sessions_per_uid, leases_per_uid, requests_per_uid, publishes_per_uid, claims_per_uid, "
		"versions_per_uid, nameless_per_uid, regions_per_uid, copies_per_uid, fds_per_uid, index_bytes_per_uid, bytes_per_uid: u64?",
};

static const struct record_field hello_result_rows[] = {
	FIELD_U64(struct hello_result, protocol),
	FIELD_ID(struct hello_result, instance),
	FIELD_ID(struct hello_result, ledger),
	FIELD_U64(struct hello_result, epoch),
	FIELD_TEXT(struct hello_result, server, NAME_BYTES_MAX),
	FIELD_U64(struct hello_result, pid),
	FIELD_TEXTS(struct hello_result, roles, UINT32_MAX, NAME_BYTES_MAX),
	FIELD_MAPS(struct hello_result, devices, UINT32_MAX, struct device_told, &device_told_record),
};
static const struct record hello_result = {
	RECORD(struct hello_result, hello_result_rows),
	.beside = "limits: limits",
};

const struct message_form form_hello = {.name = "hello", .params = &hello_params, .result = &hello_result};
const struct message_form form_ping = {
	.name = "ping", .params = &record_nothing, .result = &record_nothing, .again = true};

/* ---- subscribe ---- */

static const struct record_field subscribe_params_rows[] = {
	FIELD_U64_MAYBE(struct subscribe_params, after),
};
static const struct record subscribe_params = {RECORD(struct subscribe_params, subscribe_params_rows)};

static const struct record_field subscribe_result_rows[] = {
	FIELD_U64(struct subscribe_result, seq),
};
static const struct record subscribe_result = {RECORD(struct subscribe_result, subscribe_result_rows)};

const struct message_form form_subscribe = {
	.name = "subscribe", .params = &subscribe_params, .result = &subscribe_result, .again = true};
