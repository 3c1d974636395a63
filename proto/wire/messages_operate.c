/* Messages of operators: pins, aliases, and how versions go. */
#include "messages.h"

#include <errno.h>

/* ---- pin_version, unpin_version ---- */

static const struct record_field pin_params_rows[] = {
	FIELD_REF(struct pin_params, ref),
	FIELD_TEXT(struct pin_params, pin, NAME_BYTES_MAX),
};
static const struct record pin_params = {RECORD(struct pin_params, pin_params_rows)};

static const struct record_field version_result_rows[] = {
	FIELD_ID(struct version_result, version),
};
static const struct record version_result = {RECORD(struct version_result, version_result_rows)};

const struct message_form form_pin_version = {
	.name = "pin_version", .params = &pin_params, .result = &version_result};
const struct message_form form_unpin_version = {
	.name = "unpin_version", .params = &pin_params, .result = &version_result};

/* ---- hot_swap ---- */

static const struct record_field hot_swap_params_rows[] = {
	FIELD_TEXT(struct hot_swap_params, model, NAME_BYTES_MAX),
	FIELD_TEXT_OR(struct hot_swap_params, alias, NAME_BYTES_MAX, ALIAS_CURRENT),
	FIELD_TEXT_MAYBE(struct hot_swap_params, to, NAME_BYTES_MAX),
	FIELD_ID_MAYBE(struct hot_swap_params, expect),
	FIELD_BOOL_OR(struct hot_swap_params, retire_old, false),
};
static const struct record hot_swap_params = {RECORD(struct hot_swap_params, hot_swap_params_rows)};

static const struct record_field hot_swap_result_rows[] = {
	FIELD_ID_MAYBE(struct hot_swap_result, version),
	FIELD_ID_MAYBE(struct hot_swap_result, old),
	FIELD_U64(struct hot_swap_result, generation),
	FIELD_TEXT_MAYBE(struct hot_swap_result, old_state, NAME_BYTES_MAX),
	FIELD_ERROR_MAYBE(struct hot_swap_result, retire_error),
};
static const struct record hot_swap_result = {RECORD(struct hot_swap_result, hot_swap_result_rows)};

const struct message_form form_hot_swap = {
	.name = "hot_swap", .params = &hot_swap_params, .result = &hot_swap_result};

/* ---- retire ---- */

static int check_retire(const void *value, struct error *error)
{
	const struct retire_params *params = value;

	if (params->after_ms > 0 && !params->force)
		return error_set(error, -EINVAL, "it is how long a retire by force leaves to who has leases",
				 "\"after_ms\" without \"force\"");
	return 0;
}

static const struct record_field retire_params_rows[] = {
	FIELD_REF(struct retire_params, ref),
	FIELD_WAIT_MS(struct retire_params),
	FIELD_BOOL_OR(struct retire_params, force, false),
	FIELD_U64_OR(struct retire_params, after_ms, 0, FORCE_AFTER_MS_MAX),
};
static const struct record retire_params = {RECORD(struct retire_params, retire_params_rows),
					    .check = check_retire};

static const struct record_field retire_result_rows[] = {
	FIELD_ID(struct retire_result, version),
	FIELD_TEXT(struct retire_result, state, NAME_BYTES_MAX),
	FIELD_U64(struct retire_result, leases),
	FIELD_U64(struct retire_result, pins),
};
static const struct record retire_result = {RECORD(struct retire_result, retire_result_rows)};

const struct message_form form_retire = {.name = "retire", .params = &retire_params, .result = &retire_result};

/* ---- remove ---- */

static const struct record_field remove_params_rows[] = {
	FIELD_REF(struct remove_params, ref),
};
static const struct record remove_params = {RECORD(struct remove_params, remove_params_rows)};

const struct message_form form_remove = {.name = "remove", .params = &remove_params, .result = &version_result};

/* ---- kick ---- */

static const struct record_field kick_params_rows[] = {
	FIELD_U64_MAYBE(struct kick_params, lease),
	FIELD_U64_MAYBE(struct kick_params, pid),
	FIELD_U64_MAYBE(struct kick_params, uid),
};
static const struct record kick_params = {RECORD(struct kick_params, kick_params_rows)};

static const struct record_field kicked_rows[] = {
	FIELD_U64(struct kicked, lease),
	FIELD_U64(struct kicked, session),
	FIELD_U64(struct kicked, pid),
	FIELD_U64(struct kicked, uid),
	FIELD_TEXT(struct kicked, command, NAME_BYTES_MAX),
	FIELD_ID(struct kicked, version),
	FIELD_TEXT(struct kicked, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct kicked, tag, NAME_BYTES_MAX),
	FIELD_TEXT(struct kicked, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct kicked, rank),
};
const struct record kicked_record = {RECORD(struct kicked, kicked_rows)};

static const struct record_field kick_result_rows[] = {
	FIELD_MAPS(struct kick_result, leases, UINT32_MAX, struct kicked, &kicked_record),
};
static const struct record kick_result = {RECORD(struct kick_result, kick_result_rows)};

const struct message_form form_kick = {.name = "kick", .params = &kick_params, .result = &kick_result};

/* ---- drain ---- */

static const struct record_field drain_params_rows[] = {
	FIELD_TEXT_MAYBE(struct drain_params, device, DEVICE_BYTES_MAX),
	FIELD_BOOL_OR(struct drain_params, keep_descriptions, false),
};
static const struct record drain_params = {RECORD(struct drain_params, drain_params_rows)};

static const struct record_field still_held_rows[] = {
	FIELD_ID(struct still_held, version),
	FIELD_TEXT(struct still_held, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct still_held, tag, NAME_BYTES_MAX),
	FIELD_U64(struct still_held, leases),
	FIELD_U64(struct still_held, pins),
};
const struct record still_held_record = {RECORD(struct still_held, still_held_rows)};

static const struct record_field drain_result_rows[] = {
	FIELD_MAPS(struct drain_result, left, VERSIONS_MAX, struct still_held, &still_held_record),
	FIELD_U64_MAYBE(struct drain_result, kept_descriptions),
};
static const struct record drain_result = {RECORD(struct drain_result, drain_result_rows)};

const struct message_form form_drain = {.name = "drain", .params = &drain_params, .result = &drain_result};

/* ---- reload ---- */

static const struct record_field reload_result_rows[] = {
	FIELD_TEXT_MAYBE(struct reload_result, file, PATH_BYTES_MAX),
};
static const struct record reload_result = {RECORD(struct reload_result, reload_result_rows)};

/* To read the file once more changes nothing. */
const struct message_form form_reload = {
	.name = "reload", .params = &record_nothing, .result = &reload_result, .again = true};
