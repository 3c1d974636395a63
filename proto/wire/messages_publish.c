/* Messages of publishers. */
#include "messages.h"

#include <errno.h>

/* ---- publish_begin ---- */

/* The greatest number of 32 bits is nobody's: the kernel reads it as "no change". */
static int check_ids(const uint32_t *ids, uint32_t count, const char *key, struct error *error)
{
	for (uint32_t i = 0; i < count; i++) {
		if (ids[i] == UINT32_MAX)
			return error_set(error, -EINVAL, NULL,
					 "\"%s\" has an entry that is no user or group id", key);
	}
	return 0;
}

static int check_join(const void *value, struct error *error)
{
	const struct join_params *join = value;
	int r = check_ids(join->uids.items, join->uids.count, "uids", error);

	return r < 0 ? r : check_ids(join->gids.items, join->gids.count, "gids", error);
}

static const struct record_field join_rows[] = {
	FIELD_U32S_MAYBE(struct join_params, uids, JOIN_UIDS_MAX),
	FIELD_U32S_MAYBE(struct join_params, gids, JOIN_GIDS_MAX),
};
const struct record join_record = {RECORD(struct join_params, join_rows), .check = check_join};

static const struct record_field cache_rows[] = {
	FIELD_U64_OR(struct cache_params, ttl_ms, 0, CACHE_TTL_MS_MAX),
	FIELD_U64_OR(struct cache_params, keep_last, 0, VERSIONS_MAX),
	FIELD_ID_MAYBE(struct cache_params, companion_of),
};
static const struct record cache_record = {RECORD(struct cache_params, cache_rows)};

/* It has one owner, one part, and nothing that could name it. */
static int check_nameless(const struct publish_begin_params *params, struct error *error)
{
	const char *wrong = params->alias ? "an alias" : params->publish || params->join ? "joiners" : NULL;

	if (params->world != 1)
		wrong = "several ranks";
	if (params->cache)
		wrong = "a place in a cache";
	if (!wrong && params->give && (params->bytes == 0 || params->bytes > GIVEN_BYTES_MAX))
		return error_set(error, -EINVAL, "larger ones need a checker",
				 "gpuwmd gives segments of 1 to %llu bytes, not %llu",
				 (unsigned long long)GIVEN_BYTES_MAX, (unsigned long long)params->bytes);
	if (!wrong)
		return 0;
	return error_set(error, -EINVAL, "give it a name", "a version without a name can't have %s", wrong);
}

static int check_publish_begin(const void *value, struct error *error)
{
	const struct publish_begin_params *params = value;
	const struct join_params *joiners = params->join;
	const char *wrong = params->alias ? name_wrong(params->alias) : NULL;

	if (!params->name.ref.model[0])
		return check_nameless(params, error);
	if (params->give)
		return error_set(error, -EINVAL, "make memfds, and hand them to the checker",
				 "gpuwmd gives memory only to versions without a name");
	if (wrong)
		return error_set(error, -EINVAL, NULL, "the alias %s", wrong);
	if (params->publish && params->cache)
		return error_set(error, -EINVAL, "the first begin says it",
				 "\"cache\" comes with \"publish\", which joins a publish that has begun");
	if (params->publish && joiners && joiners->uids.count + joiners->gids.count > 0)
		return error_set(error, -EINVAL, "the first begin names them",
				 "\"join\" comes with \"publish\", which joins a publish that has begun");
	return 0;
}

static const struct record_field publish_begin_params_rows[] = {
	FIELD_NAME_MAYBE(struct publish_begin_params, name),
	FIELD_TEXT(struct publish_begin_params, device, DEVICE_BYTES_MAX),
	FIELD_U64_OR(struct publish_begin_params, rank, 0, UINT64_MAX),
	FIELD_U64_OR(struct publish_begin_params, world, 1, UINT64_MAX),
	FIELD_U64(struct publish_begin_params, bytes),
	FIELD_ID_MAYBE(struct publish_begin_params, publish),
	FIELD_MAP_MAYBE(struct publish_begin_params, join, struct join_params, &join_record),
	FIELD_TEXT_MAYBE(struct publish_begin_params, alias, NAME_BYTES_MAX),
	FIELD_BOOL_OR(struct publish_begin_params, give, false),
	FIELD_MAP_MAYBE(struct publish_begin_params, cache, struct cache_params, &cache_record),
	FIELD_U64_OR(struct publish_begin_params, segments, 1, PART_SEGMENTS_MAX),
	FIELD_WAIT_MS(struct publish_begin_params),
	FIELD_TEXT_MAYBE(struct publish_begin_params, fingerprint, FINGERPRINT_TEXT),
};
static const struct record publish_begin_params = {
	RECORD(struct publish_begin_params, publish_begin_params_rows), .check = check_publish_begin};

static const struct record_field publish_begin_result_rows[] = {
	FIELD_ID(struct publish_begin_result, publish),
	FIELD_ID(struct publish_begin_result, version),
	FIELD_U64_MAYBE(struct publish_begin_result, checker),
	FIELD_U64_MAYBE(struct publish_begin_result, alive_ms),
	FIELD_U64_MAYBE(struct publish_begin_result, index),
	FIELD_U64_MAYBE(struct publish_begin_result, segment),
	FIELD_TEXT_MAYBE(struct publish_begin_result, name, REF_BYTES_MAX),
};
static const struct record publish_begin_result = {
	RECORD(struct publish_begin_result, publish_begin_result_rows)};

const struct message_form form_publish_begin = {
	.name = "publish_begin", .params = &publish_begin_params, .result = &publish_begin_result};

/* ---- publish_commit ---- */

static const struct record_field publish_commit_params_rows[] = {
	FIELD_ID(struct publish_commit_params, publish),
	FIELD_U64_OR(struct publish_commit_params, rank, 0, UINT64_MAX),
	FIELD_TEXT(struct publish_commit_params, device, DEVICE_BYTES_MAX),
	FIELD_ID(struct publish_commit_params, content),
	FIELD_ID_MAYBE(struct publish_commit_params, layout),
	FIELD_U64_MAYBE(struct publish_commit_params, tensors),
	FIELD_BOOL_OR(struct publish_commit_params, attach, false),
};
static const struct record publish_commit_params = {
	RECORD(struct publish_commit_params, publish_commit_params_rows)};

static const struct record_field publish_commit_result_rows[] = {
	FIELD_ID(struct publish_commit_result, version),
	FIELD_TEXT(struct publish_commit_result, state, NAME_BYTES_MAX),
	FIELD_ERROR_MAYBE(struct publish_commit_result, alias_error),
	FIELD_U64_MAYBE(struct publish_commit_result, lease),
};
static const struct record publish_commit_result = {
	RECORD(struct publish_commit_result, publish_commit_result_rows)};

/* The publish is found on whatever connection the request comes: the answer is the same. */
const struct message_form form_publish_commit = {.name = "publish_commit",
						 .params = &publish_commit_params,
						 .result = &publish_commit_result,
						 .again = true};

/* ---- publish_abort ---- */

static const struct record_field publish_abort_params_rows[] = {
	FIELD_ID(struct publish_abort_params, publish),
	FIELD_TEXT_MAYBE(struct publish_abort_params, reason, TEXT_BYTES_MAX),
};
static const struct record publish_abort_params = {
	RECORD(struct publish_abort_params, publish_abort_params_rows)};

const struct message_form form_publish_abort = {
	.name = "publish_abort", .params = &publish_abort_params, .result = &record_nothing};
