/* Messages about the tiers of versions. */
#include "messages.h"

#include <errno.h>
#include <string.h>

static const struct record_field moves_result_rows[] = {
	FIELD_U64S(struct moves_result, jobs, PARTS_PER_VERSION_MAX),
};
static const struct record moves_result = {RECORD(struct moves_result, moves_result_rows)};

static int check_demote(const void *value, struct error *error)
{
	const struct demote_params *params = value;

	if (strcmp(params->to, TIER_HOST) == 0 || strcmp(params->to, TIER_FILES) == 0)
		return 0;
	return error_set(error, -EINVAL, "\"to\" is \"host\" or \"files\"",
			 "a version is not demoted to \"%.32s\"", params->to);
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
};
static const struct record describe_params = {RECORD(struct describe_params, describe_params_rows)};

const struct message_form form_describe = {
	.name = "describe", .params = &describe_params, .result = &moves_result, .again = true};
