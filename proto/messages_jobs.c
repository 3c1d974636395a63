/* Messages about jobs: loads and verifies, and what becomes of them. */
#include "messages.h"
#include "methods.h"

/* ---- load ---- */

static int check_load(const void *value, struct error *error)
{
	const struct load_params *params = value;

	return key_pairs_check(params->key.items, params->key.count, error);
}

static const struct record_field load_params_rows[] = {
	FIELD_TEXT(struct load_params, source, PATH_BYTES_MAX),
	FIELD_NAME(struct load_params, name),
	FIELD_TEXTS_MAYBE(struct load_params, devices, PARTS_PER_VERSION_MAX, DEVICE_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct load_params, alias, NAME_BYTES_MAX),
	FIELD_ID_MAYBE(struct load_params, expect),
	FIELD_BOOL_OR(struct load_params, retire_old, false),
	FIELD_BOOL_OR(struct load_params, dry_run, false),
	FIELD_MAPS_MAYBE(struct load_params, key, KEY_FIELDS_MAX, struct key_pair, &key_pair_record),
	FIELD_TEXT_MAYBE(struct load_params, share_with, REF_BYTES_MAX),
	FIELD_U64_MAYBE(struct load_params, segment_bytes),
};
static const struct record load_params = {RECORD(struct load_params, load_params_rows), .check = check_load};

static const struct record_field load_result_rows[] = {
	FIELD_U64(struct load_result, job),
};
static const struct record load_result = {RECORD(struct load_result, load_result_rows)};

const struct message_form form_load = {METHOD_LOAD, &load_params, &load_result};

/* ---- verify ---- */

static const struct record_field verify_params_rows[] = {
	FIELD_REF(struct verify_params, ref),
	FIELD_TEXT_MAYBE(struct verify_params, device, DEVICE_BYTES_MAX),
	FIELD_U64_MAYBE(struct verify_params, rank),
};
static const struct record verify_params = {RECORD(struct verify_params, verify_params_rows)};

static const struct record_field verify_result_rows[] = {
	FIELD_U64S(struct verify_result, jobs, PARTS_PER_VERSION_MAX),
};
static const struct record verify_result = {RECORD(struct verify_result, verify_result_rows)};

const struct message_form form_verify = {METHOD_VERIFY, &verify_params, &verify_result};

/* ---- jobs, cancel ---- */

static const struct record_field jobs_params_rows[] = {
	FIELD_U64_MAYBE(struct jobs_params, job),
	FIELD_WAIT_MS(struct jobs_params),
};
static const struct record jobs_params = {RECORD(struct jobs_params, jobs_params_rows)};

const struct message_form form_jobs = {METHOD_JOBS, &jobs_params, &record_by_hand};

static const struct record_field cancel_params_rows[] = {
	FIELD_U64(struct cancel_params, job),
};
static const struct record cancel_params = {RECORD(struct cancel_params, cancel_params_rows)};

const struct message_form form_cancel = {METHOD_CANCEL, &cancel_params, &record_nothing};
