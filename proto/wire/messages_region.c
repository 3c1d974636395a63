/* Messages about regions. */
#include "messages.h"

#include <errno.h>
#include <string.h>

/* A name, or 32 hexadecimal digits. */
static int check_reference(const char *region, struct error *error)
{
	uint8_t id[16];
	const char *wrong = hex128_parse(region, id) == 0 ? NULL : name_wrong(region);

	return wrong ? error_set(error, -EINVAL, "give its name or its id", "the region %s", wrong) : 0;
}

/* ---- region_create, region_open ---- */

static const struct record_field create_params_rows[] = {
	FIELD_TEXT_MAYBE(struct region_create_params, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_create_params, device, DEVICE_BYTES_MAX),
	FIELD_TEXT_OR(struct region_create_params, kind, NAME_BYTES_MAX, REGION_KIND_POOL),
	FIELD_TEXT_OR(struct region_create_params, writers, NAME_BYTES_MAX, REGION_WRITERS_ONE),
	FIELD_TEXT_OR(struct region_create_params, owner, NAME_BYTES_MAX, REGION_OWNER_PROCESS),
	FIELD_U64(struct region_create_params, bytes),
	FIELD_U64_OR(struct region_create_params, chunks, 0, REGION_CHUNKS_MAX),
	FIELD_U64_OR(struct region_create_params, item_bytes, 0, QUEUE_CELL_BYTES_MAX),
	FIELD_U64_OR(struct region_create_params, ttl_ms, 0, UINT64_MAX),
	FIELD_U64_OR(struct region_create_params, blocks, 0, REGION_BLOCKS_MAX),
	FIELD_U64_OR(struct region_create_params, block_bytes, 0, UINT64_MAX),
	FIELD_BOOL_OR(struct region_create_params, clear, false),
	FIELD_ID_MAYBE(struct region_create_params, use),
	FIELD_WAIT_MS(struct region_create_params),
};
static const struct record create_params = {RECORD(struct region_create_params, create_params_rows),
					    .check = region_create_check};

static const struct record_field use_rows[] = {
	FIELD_ID(struct region_use, region),
	FIELD_ID(struct region_use, use),
	FIELD_TEXT_MAYBE(struct region_use, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_use, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct region_use, kind, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_use, writers, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_use, owner, NAME_BYTES_MAX),
	FIELD_U64(struct region_use, bytes),
	FIELD_U64_TO(struct region_use, chunks, REGION_CHUNKS_MAX),
	FIELD_U64_TO(struct region_use, item_bytes, QUEUE_CELL_BYTES_MAX),
	FIELD_U64_TO(struct region_use, blocks, REGION_BLOCKS_MAX),
	FIELD_U64(struct region_use, block_bytes),
	FIELD_BOOL(struct region_use, clear),
	FIELD_U64(struct region_use, ttl_ms),
	FIELD_U64_TO(struct region_use, slot, REGION_USERS_MAX - 1),
	FIELD_BOOL(struct region_use, write),
	FIELD_BOOL(struct region_use, owns),
	FIELD_U64(struct region_use, control),
	FIELD_U64(struct region_use, memory),
};
static const struct record use_record = {RECORD(struct region_use, use_rows)};

/* With the same use it makes no second region. */
const struct message_form form_region_create = {
	.name = "region_create", .params = &create_params, .result = &use_record, .again = true};

static int check_open(const void *value, struct error *error)
{
	const struct region_open_params *params = value;

	return check_reference(params->region, error);
}

static const struct record_field open_params_rows[] = {
	FIELD_TEXT(struct region_open_params, region, NAME_BYTES_MAX),
	FIELD_BOOL_OR(struct region_open_params, write, false),
	FIELD_BOOL_OR(struct region_open_params, own, false),
	FIELD_ID_MAYBE(struct region_open_params, use),
	FIELD_WAIT_MS(struct region_open_params),
};
static const struct record open_params = {RECORD(struct region_open_params, open_params_rows),
					  .check = check_open};

/* With the same use it gets the same slot. */
const struct message_form form_region_open = {
	.name = "region_open", .params = &open_params, .result = &use_record, .again = true};

/* ---- region_close, region_remove ---- */

static const struct record_field close_params_rows[] = {
	FIELD_ID(struct region_close_params, use),
};
static const struct record close_params = {RECORD(struct region_close_params, close_params_rows)};

/* A use that was given back is given back. */
const struct message_form form_region_close = {
	.name = "region_close", .params = &close_params, .result = &record_nothing, .again = true};

static int check_remove(const void *value, struct error *error)
{
	const struct region_remove_params *params = value;

	return check_reference(params->region, error);
}

static const struct record_field remove_params_rows[] = {
	FIELD_TEXT(struct region_remove_params, region, NAME_BYTES_MAX),
};
static const struct record remove_params = {RECORD(struct region_remove_params, remove_params_rows),
					    .check = check_remove};

const struct message_form form_region_remove = {
	.name = "region_remove", .params = &remove_params, .result = &record_nothing};

/* ---- scratch_acquire, scratch_release ---- */

static const struct record_field acquire_params_rows[] = {
	FIELD_ID(struct scratch_acquire_params, use),
	FIELD_WAIT_MS(struct scratch_acquire_params),
};
static const struct record acquire_params = {RECORD(struct scratch_acquire_params, acquire_params_rows)};

static const struct record_field acquire_result_rows[] = {
	FIELD_BOOL(struct scratch_acquire_result, clear),
};
static const struct record acquire_result = {RECORD(struct scratch_acquire_result, acquire_result_rows)};

/* The use that holds it already is answered at once. */
const struct message_form form_scratch_acquire = {
	.name = "scratch_acquire", .params = &acquire_params, .result = &acquire_result, .again = true};

static const struct record_field release_params_rows[] = {
	FIELD_ID(struct scratch_release_params, use),
	FIELD_BOOL_OR(struct scratch_release_params, untouched, false),
};
static const struct record release_params = {RECORD(struct scratch_release_params, release_params_rows)};

/* What was given back is given back. */
const struct message_form form_scratch_release = {
	.name = "scratch_release", .params = &release_params, .result = &record_nothing, .again = true};

/* ---- region_list ---- */

static int check_list(const void *value, struct error *error)
{
	const struct region_list_params *params = value;

	return params->region ? check_reference(params->region, error) : 0;
}

static const struct record_field list_params_rows[] = {
	FIELD_TEXT_MAYBE(struct region_list_params, region, NAME_BYTES_MAX),
};
static const struct record list_params = {RECORD(struct region_list_params, list_params_rows),
					  .check = check_list};

static const struct record_field user_rows[] = {
	FIELD_U64(struct region_user_told, slot),
	FIELD_U64(struct region_user_told, pid),
	FIELD_U64(struct region_user_told, uid),
	FIELD_TEXT(struct region_user_told, command, NAME_BYTES_MAX),
	FIELD_BOOL(struct region_user_told, write),
	FIELD_BOOL(struct region_user_told, owns),
	FIELD_U64(struct region_user_told, since_ms),
	FIELD_U64_MAYBE(struct region_user_told, holds),
};
const struct record region_user_told_record = {RECORD(struct region_user_told, user_rows)};

static const struct record_field chunk_rows[] = {
	FIELD_U64(struct region_chunk_told, chunk),
	FIELD_U64(struct region_chunk_told, offset),
	FIELD_U64(struct region_chunk_told, bytes),
	FIELD_U64(struct region_chunk_told, age_ms),
	FIELD_U64S(struct region_chunk_told, holders, REGION_USERS_MAX),
	FIELD_U64S(struct region_chunk_told, awaited, REGION_USERS_MAX),
	FIELD_U64(struct region_chunk_told, open),
};
const struct record region_chunk_told_record = {RECORD(struct region_chunk_told, chunk_rows)};

static const struct record_field told_rows[] = {
	FIELD_ID(struct region_told, region),
	FIELD_TEXT_MAYBE(struct region_told, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_told, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct region_told, kind, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_told, writers, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_told, owner, NAME_BYTES_MAX),
	FIELD_TEXT(struct region_told, state, NAME_BYTES_MAX),
	FIELD_U64(struct region_told, owner_uid),
	FIELD_U64(struct region_told, bytes),
	FIELD_U64(struct region_told, created_ms),
	FIELD_U64(struct region_told, chunks),
	FIELD_U64(struct region_told, chunks_used),
	FIELD_U64_MAYBE(struct region_told, bytes_used),
	FIELD_U64_MAYBE(struct region_told, largest_free),
	FIELD_U64(struct region_told, messages),
	FIELD_U64(struct region_told, blocks),
	FIELD_U64(struct region_told, block_bytes),
	FIELD_U64_MAYBE(struct region_told, blocks_owned),
	FIELD_U64_MAYBE(struct region_told, blocks_ready),
	FIELD_U64_MAYBE(struct region_told, blocks_held),
	FIELD_U64_MAYBE(struct region_told, holder),
	FIELD_U64(struct region_told, waiting),
	FIELD_ERROR_MAYBE(struct region_told, error),
	FIELD_LOOP("users", &region_user_told_record),
	FIELD_LOOP_MAYBE("oldest", &region_chunk_told_record),
};
const struct record region_told_record = {RECORD(struct region_told, told_rows)};

static const struct record_field list_result_rows[] = {
	FIELD_U64(struct region_list_result, seq),
	FIELD_LOOP("regions", &region_told_record),
};
static const struct record list_result = {RECORD(struct region_list_result, list_result_rows)};

const struct message_form form_region_list = {
	.name = "region_list", .params = &list_params, .result = &list_result, .again = true};

/* ---- with the loader ---- */

static const struct record_field loader_region_rows[] = {
	FIELD_ID(struct loader_region_params, region),
	FIELD_U64(struct loader_region_params, memory),
	FIELD_U64(struct loader_region_params, bytes),
};
static const struct record loader_region = {RECORD(struct loader_region_params, loader_region_rows)};

const struct message_form form_loader_region = {
	.name = "loader_region", .params = &loader_region, .result = &record_nothing};
