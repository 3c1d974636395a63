/* Messages about jobs: loads, verifies and moves between tiers, and what becomes of them. */
#include "messages.h"

#include "../tier_kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- load ---- */

static int check_load_choice(const void *value, struct error *error)
{
	const struct load_choice *choice = value;
	const uint64_t *ranks = choice->ranks;

	if (choice->only.items && choice->only.count == 0)
		return error_set(error, -EINVAL, "leave it out to take all tensors", "only: there is no glob");
	if (!ranks != !choice->cut)
		return error_set(error, -EINVAL, "a source is cut into `ranks` by the plan `cut`",
				 "%s is given without %s", ranks ? "ranks" : "cut", ranks ? "cut" : "ranks");
	if (ranks && (*ranks < 1 || *ranks > PARTS_PER_VERSION_MAX))
		return error_set(error, -EINVAL, NULL, "ranks: between 1 and %d are possible, not %llu",
				 PARTS_PER_VERSION_MAX, (unsigned long long)*ranks);
	return 0;
}

static const struct record_field load_choice_rows[] = {
	FIELD_U64_MAYBE(struct load_choice, ranks),
	FIELD_TEXT_MAYBE(struct load_choice, cut, CUT_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct load_choice, only, LOAD_GLOBS_MAX, LOAD_GLOB_BYTES_MAX),
};
const struct record load_choice_record = {RECORD(struct load_choice, load_choice_rows),
					  .check = check_load_choice};

static int check_load_wish(const void *value, struct error *error)
{
	const struct load_wish *wish = value;
	const uint64_t *ranks = wish->choice.ranks;

	if (ranks && wish->devices.count > 1 && wish->devices.count != *ranks)
		return error_set(error, -EINVAL, "name one device for each rank, or one for all of them",
				 "devices: %u are named for %llu ranks", wish->devices.count,
				 (unsigned long long)*ranks);
	return key_pairs_check(wish->key.items, wish->key.count, error);
}

static const struct record_field load_wish_rows[] = {
	FIELD_TEXT(struct load_wish, source, PATH_BYTES_MAX),
	FIELD_TEXTS_MAYBE(struct load_wish, devices, PARTS_PER_VERSION_MAX, DEVICE_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct load_wish, alias, NAME_BYTES_MAX),
	FIELD_BOOL_OR(struct load_wish, dry_run, false),
	FIELD_MAPS_MAYBE(struct load_wish, key, KEY_FIELDS_MAX, struct key_pair, &key_pair_record),
	FIELD_TEXT_MAYBE(struct load_wish, share_with, REF_BYTES_MAX),
	FIELD_U64_MAYBE(struct load_wish, segment_bytes),
	FIELD_SPLICE(struct load_wish, choice, struct load_choice, &load_choice_record),
	FIELD_TEXT_MAYBE(struct load_wish, fingerprint, FINGERPRINT_TEXT),
	FIELD_ID_MAYBE(struct load_wish, companion_of),
};
const struct record load_wish_record = {RECORD(struct load_wish, load_wish_rows), .check = check_load_wish};

static const struct record_field load_params_rows[] = {
	FIELD_SPLICE(struct load_params, wish, struct load_wish, &load_wish_record),
	FIELD_NAME(struct load_params, name),
	FIELD_ID_MAYBE(struct load_params, expect),
	FIELD_BOOL_OR(struct load_params, retire_old, false),
	FIELD_BOOL_OR(struct load_params, files, false),
};
static const struct record load_params = {RECORD(struct load_params, load_params_rows)};

static const struct record_field load_result_rows[] = {
	FIELD_U64(struct load_result, job),
	FIELD_U64_MAYBE(struct load_result, files),
};
static const struct record load_result = {RECORD(struct load_result, load_result_rows)};

const struct message_form form_load = {.name = "load", .params = &load_params, .result = &load_result};

/* ---- verify ---- */

static const struct record_field verify_params_rows[] = {
	FIELD_REF(struct verify_params, ref),
	FIELD_TEXT_MAYBE(struct verify_params, device, DEVICE_BYTES_MAX),
	FIELD_U64_MAYBE(struct verify_params, rank),
	FIELD_BOOL_OR(struct verify_params, source, false),
};
static const struct record verify_params = {RECORD(struct verify_params, verify_params_rows)};

static const struct record_field verify_result_rows[] = {
	FIELD_U64S(struct verify_result, jobs, PARTS_PER_VERSION_MAX),
};
static const struct record verify_result = {RECORD(struct verify_result, verify_result_rows)};

/* The jobs ended with the gpuwmd that took the request. */
const struct message_form form_verify = {
	.name = "verify", .params = &verify_params, .result = &verify_result, .again = true};

/* ---- demote, promote, describe ---- */

static const struct record_field moves_result_rows[] = {
	FIELD_U64S(struct moves_result, jobs, PARTS_PER_VERSION_MAX),
};
static const struct record moves_result = {RECORD(struct moves_result, moves_result_rows)};

static int check_demote(const void *value, struct error *error)
{
	const struct demote_params *params = value;
	char names[TIERS_TEXT], detail[TIERS_TEXT + 16];
	enum tier to;

	if (tier_find(params->to, &to) == 0 && !tier_is_resident(to))
		return 0;
	snprintf(detail, sizeof(detail), "\"to\" is %s", tier_list(ON_DEVICE + 1, names));
	return error_set(error, -EINVAL, detail, "a version is not demoted to \"%.32s\"", params->to);
}

static const struct record_field demote_params_rows[] = {
	FIELD_REF(struct demote_params, ref),
	FIELD_TEXT(struct demote_params, to, NAME_BYTES_MAX),
};
static const struct record demote_params = {RECORD(struct demote_params, demote_params_rows),
					    .check = check_demote};

/* A version that lies there already is none that has to move: all three may be asked again. */
const struct message_form form_demote = {
	.name = "demote", .params = &demote_params, .result = &moves_result, .again = true};

static const struct record_field promote_params_rows[] = {
	FIELD_REF(struct promote_params, ref),
};
static const struct record promote_params = {RECORD(struct promote_params, promote_params_rows)};

const struct message_form form_promote = {
	.name = "promote", .params = &promote_params, .result = &moves_result, .again = true};

static const struct record_field describe_params_rows[] = {
	FIELD_REF(struct describe_params, ref),
	FIELD_TEXT(struct describe_params, source, PATH_BYTES_MAX),
	FIELD_BOOL_OR(struct describe_params, files, false),
};
static const struct record describe_params = {RECORD(struct describe_params, describe_params_rows)};

static const struct record_field describe_result_rows[] = {
	FIELD_U64S(struct moves_result, jobs, PARTS_PER_VERSION_MAX),
	FIELD_U64S_MAYBE(struct moves_result, files, PARTS_PER_VERSION_MAX),
};
static const struct record describe_result = {RECORD(struct moves_result, describe_result_rows)};

const struct message_form form_describe = {
	.name = "describe", .params = &describe_params, .result = &describe_result, .again = true};

/* ---- jobs, cancel ---- */

static const struct record_field jobs_params_rows[] = {
	FIELD_U64_MAYBE(struct jobs_params, job),
	FIELD_WAIT_MS(struct jobs_params),
};
static const struct record jobs_params = {RECORD(struct jobs_params, jobs_params_rows)};

static const struct record_field plan_device_told_rows[] = {
	FIELD_TEXT(struct plan_device_told, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct plan_device_told, bytes),
	FIELD_U64(struct plan_device_told, segments),
	FIELD_U64(struct plan_device_told, context),
	FIELD_U64_MAYBE(struct plan_device_told, free),
	FIELD_U64(struct plan_device_told, budget_left),
	FIELD_BOOL(struct plan_device_told, fits),
	FIELD_ERROR_MAYBE(struct plan_device_told, refusal),
	FIELD_BOOL_OR(struct plan_device_told, short_of_free, false),
};
const struct record plan_device_told_record = {RECORD(struct plan_device_told, plan_device_told_rows)};

static const struct record_field plan_demotion_told_rows[] = {
	FIELD_TEXT(struct plan_demotion_told, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct plan_demotion_told, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct plan_demotion_told, tag, NAME_BYTES_MAX),
	FIELD_TEXT(struct plan_demotion_told, to, NAME_BYTES_MAX),
	FIELD_U64(struct plan_demotion_told, bytes),
};
const struct record plan_demotion_told_record = {RECORD(struct plan_demotion_told, plan_demotion_told_rows)};

static const struct record_field plan_told_rows[] = {
	FIELD_U64(struct plan_told, tensors),
	FIELD_U64(struct plan_told, files),
	FIELD_U64(struct plan_told, bytes),
	FIELD_U64(struct plan_told, cached),
	FIELD_LOOP("devices", &plan_device_told_record),
	FIELD_LOOP_MAYBE("demotes", &plan_demotion_told_record),
};
const struct record plan_told_record = {RECORD(struct plan_told, plan_told_rows)};

static const struct record_field job_phase_told_rows[] = {
	FIELD_TEXT(struct job_phase_told, phase, PHASE_BYTES_MAX),
	FIELD_U64(struct job_phase_told, ms),
	FIELD_U64_OR(struct job_phase_told, bytes, 0, UINT64_MAX),
};
const struct record job_phase_told_record = {RECORD(struct job_phase_told, job_phase_told_rows)};

static const struct record_field job_told_rows[] = {
	FIELD_U64(struct job_told, job),
	FIELD_TEXT(struct job_told, kind, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_told, state, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_told, phase, PHASE_BYTES_MAX),
	FIELD_TEXT(struct job_told, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct job_told, tag, NAME_BYTES_MAX),
	FIELD_TEXT_MAYBE(struct job_told, source, PATH_BYTES_MAX),
	FIELD_TEXTS(struct job_told, devices, PARTS_PER_VERSION_MAX, DEVICE_BYTES_MAX),
	FIELD_ID_MAYBE(struct job_told, version),
	FIELD_U64_MAYBE(struct job_told, rank),
	FIELD_U64(struct job_told, uid),
	FIELD_U64(struct job_told, done),
	FIELD_U64(struct job_told, total),
	FIELD_LOOP("phases", &job_phase_told_record),
	FIELD_TEXTS(struct job_told, notes, JOB_NOTES_MAX, TEXT_BYTES_MAX),
	FIELD_BOOL_OR(struct job_told, dry_run, false),
	FIELD_OPEN_MAYBE("plan", &plan_told_record),
	FIELD_U64(struct job_told, created_ms),
	FIELD_U64_MAYBE(struct job_told, started_ms),
	FIELD_U64_MAYBE(struct job_told, ended_ms),
	FIELD_ERROR_MAYBE(struct job_told, error),
};
const struct record job_told_record = {RECORD(struct job_told, job_told_rows)};

static const struct record_field jobs_result_rows[] = {
	FIELD_LOOP("jobs", &job_told_record),
};
/* A struct of it would have no member. */
static const struct record jobs_result = {.fields = jobs_result_rows, .field_count = 1};

const struct message_form form_jobs = {
	.name = "jobs", .params = &jobs_params, .result = &jobs_result, .again = true};

static const struct record_field cancel_params_rows[] = {
	FIELD_U64(struct cancel_params, job),
};
static const struct record cancel_params = {RECORD(struct cancel_params, cancel_params_rows)};

const struct message_form form_cancel = {.name = "cancel", .params = &cancel_params, .result = &record_nothing};
