/* Messages between gpuwmd and its loaders. */
#include "messages.h"
#include "methods.h"

/* ---- job: of the kind "load" ---- */

static int check_job_load(const void *value, struct error *error)
{
	const struct job_load_params *params = value;

	return key_pairs_check(params->key.items, params->key.count, error);
}

static const struct record_field job_load_params_rows[] = {
	FIELD_TEXT(struct job_load_params, source, PATH_BYTES_MAX),
	FIELD_TEXT(struct job_load_params, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_load_params, tag, NAME_BYTES_MAX),
	FIELD_TEXTS(struct job_load_params, devices, PARTS_PER_VERSION_MAX, DEVICE_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct job_load_params, roots, ROOTS_MAX, PATH_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct job_load_params, alias, NAME_BYTES_MAX),
	FIELD_BOOL_OR(struct job_load_params, dry_run, false),
	FIELD_BOOL_OR(struct job_load_params, keep, false),
	FIELD_MAPS_MAYBE(struct job_load_params, key, KEY_FIELDS_MAX, struct key_pair, &key_pair_record),
};
static const struct record job_load_params = {
	RECORD(struct job_load_params, job_load_params_rows),
	.beside = "job: u64, kind: text",
	.check = check_job_load,
};

const struct message_form form_job_load = {NOTIFY_LOADER_JOB, &job_load_params, NULL};

/* ---- what a loader tells ---- */

const struct message_form form_loader_hello = {METHOD_LOADER_HELLO, &record_by_hand, &record_by_hand};
const struct message_form form_loader_checked = {METHOD_LOADER_CHECKED, &record_by_hand, &record_nothing};
const struct message_form form_loader_done = {METHOD_LOADER_DONE, &record_by_hand, &record_by_hand};
const struct message_form form_loader_progress = {METHOD_LOADER_PROGRESS, &record_by_hand, NULL};
const struct message_form form_loader_devices = {METHOD_LOADER_DEVICES, &record_by_hand, NULL};
const struct message_form form_loader_warm = {METHOD_LOADER_WARM, &record_by_hand, NULL};
