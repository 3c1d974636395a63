/* The forms of the messages between nodes. docs/peers.md has the same. */
#include "messages.h"

#include <errno.h>

#define NODE_BYTES_MAX 253 /* a machine's name */
#define PROGRAM_BYTES_MAX 64
#define MACHINE_BYTES_MAX 64 /* a UUID has 36 */
#define KIND_BYTES_MAX 15
#define TIER_BYTES_MAX 15
#define ADDRESS_BYTES 45 /* of IPv6, in digits */
#define PORT_MAX 65535

#define FORM(word, params_, result_)                                                                           \
	const struct message_form form_peer_##word = {.name = #word, .params = params_, .result = result_}

/* ---- hello ---- */

static const struct record_field hello_params_rows[] = {
	FIELD_U64(struct peer_hello_params, protocol_min),
	FIELD_U64(struct peer_hello_params, protocol_max),
	FIELD_TEXT(struct peer_hello_params, node, NODE_BYTES_MAX),
	FIELD_TEXT(struct peer_hello_params, program, PROGRAM_BYTES_MAX),
};
static const struct record hello_params = {RECORD(struct peer_hello_params, hello_params_rows)};

static const struct record_field hello_result_rows[] = {
	FIELD_U64(struct peer_hello_result, protocol),
	FIELD_TEXT(struct peer_hello_result, node, NODE_BYTES_MAX),
	FIELD_TEXT(struct peer_hello_result, program, PROGRAM_BYTES_MAX),
	FIELD_ID_MAYBE(struct peer_hello_result, ledger),
	FIELD_TEXT_MAYBE(struct peer_hello_result, machine, MACHINE_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct peer_hello_result, wires, WIRES_MAX, WIRE_NAME_BYTES_MAX),
};
static const struct record hello_result = {RECORD(struct peer_hello_result, hello_result_rows)};

FORM(hello, &hello_params, &hello_result);

/* ---- list ---- */

static const struct record_field version_rows[] = {
	FIELD_ID(struct peer_version, version),
	FIELD_TEXT(struct peer_version, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct peer_version, tag, NAME_BYTES_MAX),
	FIELD_TEXTS(struct peer_version, aliases, PEER_ALIASES_MAX, NAME_BYTES_MAX),
	FIELD_U64(struct peer_version, world),
	FIELD_U64(struct peer_version, bytes),
	FIELD_TEXT(struct peer_version, tier, TIER_BYTES_MAX),
	FIELD_ID_MAYBE(struct peer_version, content),
	FIELD_TEXT_MAYBE(struct peer_version, fingerprint, PEER_SHA256_TEXT),
	FIELD_ID_MAYBE(struct peer_version, companion_of),
};
const struct record peer_version_record = {RECORD(struct peer_version, version_rows)};

static const struct record_field list_params_rows[] = {
	FIELD_U64_OR(struct peer_list_params, from, 0, UINT32_MAX),
};
static const struct record list_params = {RECORD(struct peer_list_params, list_params_rows)};

static const struct record_field list_result_rows[] = {
	FIELD_U64_TO(struct peer_list_result, total, UINT32_MAX),
	FIELD_LOOP("versions", &peer_version_record),
};
static const struct record list_result = {RECORD(struct peer_list_result, list_result_rows)};

FORM(list, &list_params, &list_result);

/* ---- find ---- */

static const struct record_field find_params_rows[] = {
	FIELD_TEXT(struct peer_find_params, ref, REF_BYTES_MAX),
};
static const struct record find_params = {RECORD(struct peer_find_params, find_params_rows)};

static const struct record_field part_rows[] = {
	FIELD_U64_TO(struct peer_part, rank, UINT32_MAX),
	FIELD_TEXT(struct peer_part, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct peer_part, kind, KIND_BYTES_MAX),
	FIELD_U64(struct peer_part, bytes),
	FIELD_U64_TO(struct peer_part, segments, PART_SEGMENTS_MAX),
	FIELD_U64_TO(struct peer_part, index_bytes, INDEX_BYTES_MAX),
};
static const struct record part_record = {RECORD(struct peer_part, part_rows)};

static const struct record_field find_result_rows[] = {
	FIELD_ID(struct peer_find_result, version),
	FIELD_TEXT(struct peer_find_result, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct peer_find_result, tag, NAME_BYTES_MAX),
	FIELD_U64_TO(struct peer_find_result, world, UINT32_MAX),
	FIELD_MAPS(struct peer_find_result, parts, PARTS_PER_VERSION_MAX, struct peer_part, &part_record),
	FIELD_U64(struct peer_find_result, piece_bytes),
	FIELD_TEXT_MAYBE(struct peer_find_result, fingerprint, PEER_SHA256_TEXT),
};
static const struct record find_result = {RECORD(struct peer_find_result, find_result_rows)};

FORM(find, &find_params, &find_result);

/* ---- index, sums ---- */

static const struct record_field index_params_rows[] = {
	FIELD_ID(struct peer_index_params, version),
	FIELD_U64_TO(struct peer_index_params, rank, UINT32_MAX),
};
static const struct record index_params = {RECORD(struct peer_index_params, index_params_rows)};

static const struct record_field index_result_rows[] = {
	FIELD_U64_TO(struct peer_index_result, bytes, INDEX_BYTES_MAX),
};
static const struct record index_result = {RECORD(struct peer_index_result, index_result_rows)};

FORM(index, &index_params, &index_result);

static const struct record_field sums_params_rows[] = {
	FIELD_ID(struct peer_sums_params, version),
	FIELD_U64_TO(struct peer_sums_params, rank, UINT32_MAX),
	FIELD_U64_TO(struct peer_sums_params, segment, PART_SEGMENTS_MAX - 1),
	FIELD_U64_OR(struct peer_sums_params, from, 0, UINT64_MAX),
};
static const struct record sums_params = {RECORD(struct peer_sums_params, sums_params_rows)};

static const struct record_field sums_result_rows[] = {FIELD_U64(struct peer_sums_result, pieces)};
static const struct record sums_result = {RECORD(struct peer_sums_result, sums_result_rows)};

FORM(sums, &sums_params, &sums_result);

/* ---- take ---- */

static const struct record_field take_params_rows[] = {
	FIELD_ID(struct peer_take_params, version),
	FIELD_U64_TO(struct peer_take_params, rank, UINT32_MAX),
	FIELD_TEXT(struct peer_take_params, wire, WIRE_NAME_BYTES_MAX),
	FIELD_TEXT(struct peer_take_params, worker, PEER_WORKER_TEXT),
	FIELD_U64(struct peer_take_params, nonce),
	FIELD_U64_MAYBE(struct peer_take_params, serves),
	FIELD_BOOL_OR(struct peer_take_params, stay, false),
	FIELD_U64_MAYBE(struct peer_take_params, pace),
};

static int check_take(const void *value, struct error *error)
{
	const struct peer_take_params *params = value;

	if (params->serves && (*params->serves == 0 || *params->serves > PORT_MAX))
		return error_set(error, -EINVAL, NULL, "serves: %llu is no port",
				 (unsigned long long)*params->serves);
	return 0;
}

static const struct record take_params = {RECORD(struct peer_take_params, take_params_rows),
					  .check = check_take};

static const struct record_field redirect_rows[] = {
	FIELD_TEXT(struct peer_redirect, host, ADDRESS_BYTES),
	FIELD_U64_TO(struct peer_redirect, port, PORT_MAX),
	FIELD_TEXT_OR(struct peer_redirect, name, NODE_BYTES_MAX, ""),
};
static const struct record redirect_record = {RECORD(struct peer_redirect, redirect_rows)};

static const struct record_field take_result_rows[] = {
	FIELD_MAP_MAYBE(struct peer_take_result, redirect, struct peer_redirect, &redirect_record),
	FIELD_TEXT_MAYBE(struct peer_take_result, worker, PEER_WORKER_TEXT),
};
static const struct record take_result = {RECORD(struct peer_take_result, take_result_rows)};

FORM(take, &take_params, &take_result);

static const struct record_field lane_params_rows[] = {
	FIELD_TEXT(struct peer_lane_params, secret, PEER_WORKER_TEXT),
	FIELD_BOOL_OR(struct peer_lane_params, clear, false),
};
static const struct record lane_params = {RECORD(struct peer_lane_params, lane_params_rows)};

static const struct record_field lane_result_rows[] = {
	FIELD_BOOL_OR(struct peer_lane_result, clear, false),
};
static const struct record lane_result = {RECORD(struct peer_lane_result, lane_result_rows)};

FORM(lane, &lane_params, &lane_result);

static const struct record_field want_rows[] = {
	FIELD_U64_TO(struct peer_want_params, segment, PART_SEGMENTS_MAX - 1),
	FIELD_U64(struct peer_want_params, first),
	FIELD_U64(struct peer_want_params, count),
};
static const struct record want_params = {RECORD(struct peer_want_params, want_rows)};

FORM(want, &want_params, NULL);

static const struct record_field done_rows[] = {
	FIELD_U64(struct peer_done_params, bytes),
	FIELD_ERROR_MAYBE(struct peer_done_params, error),
};
static const struct record done_params = {RECORD(struct peer_done_params, done_rows)};

FORM(done, &done_params, NULL);

static const struct record_field gone_rows[] = {FIELD_ERROR(struct peer_gone_params, error)};
static const struct record gone_params = {RECORD(struct peer_gone_params, gone_rows)};

FORM(gone, &gone_params, NULL);

/* ---- all ---- */

const struct message_form *const peer_forms[] = {
	&form_peer_hello, &form_peer_list, &form_peer_find, &form_peer_index, &form_peer_sums,
	&form_peer_take,  &form_peer_lane, &form_peer_want, &form_peer_done,  &form_peer_gone,
};
const size_t peer_form_count = sizeof(peer_forms) / sizeof(*peer_forms);
