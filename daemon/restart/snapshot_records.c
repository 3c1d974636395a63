#include "snapshot_records.h"

#include "../../proto/control.h"

/* Any number of 64 bits, 0 if it is missing. */
#define FIELD_U64_OR_0(S, m) FIELD_U64_OR(S, m, 0, UINT64_MAX)

static const struct record_field state_rows[] = {
	FIELD_ID(struct kept_state, ledger),
	FIELD_U64(struct kept_state, epoch),
	FIELD_U64(struct kept_state, next_name),
	FIELD_U64_OR_0(struct kept_state, scrub_from_ms),
	FIELD_BOOL_OR(struct kept_state, described, false),
};
const struct record kept_state_record = {RECORD(struct kept_state, state_rows)};

static const struct record_field device_rows[] = {
	FIELD_TEXT(struct kept_device, id, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct kept_device, kind, NAME_BYTES_MAX),
	FIELD_TEXT(struct kept_device, name, DEVICE_NAME_BYTES_MAX),
	FIELD_U64(struct kept_device, total),
	FIELD_U64(struct kept_device, granularity),
	FIELD_U64_OR_0(struct kept_device, context),
	FIELD_ERROR_MAYBE(struct kept_device, lost),
};
const struct record kept_device_record = {RECORD(struct kept_device, device_rows)};

static const struct record_field alias_rows[] = {
	FIELD_TEXT(struct kept_alias, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct kept_alias, name, NAME_BYTES_MAX),
	FIELD_ID(struct kept_alias, version),
	FIELD_U64(struct kept_alias, generation),
	FIELD_ID_MAYBE(struct kept_alias, before),
};
const struct record kept_alias_record = {RECORD(struct kept_alias, alias_rows)};

static const struct record_field owner_rows[] = {
	FIELD_TEXT(struct kept_owner, model, NAME_BYTES_MAX),
	FIELD_U64_TO(struct kept_owner, uid, UINT32_MAX),
	FIELD_BOOL_OR(struct kept_owner, by_operator, false),
};
const struct record kept_owner_record = {RECORD(struct kept_owner, owner_rows)};

static const struct record_field claim_rows[] = {
	FIELD_TEXT(struct kept_claim, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct kept_claim, tag, NAME_BYTES_MAX),
	FIELD_U64_TO(struct kept_claim, uid, UINT32_MAX),
};
const struct record kept_claim_record = {RECORD(struct kept_claim, claim_rows)};

static const struct record_field version_rows[] = {
	FIELD_TEXT(struct kept_version, state, NAME_BYTES_MAX),
	FIELD_ERROR_MAYBE(struct kept_version, error),
	FIELD_ERROR_MAYBE(struct kept_version, tainted),
	FIELD_U64_OR_0(struct kept_version, lost_parts),
	FIELD_BOOL_OR(struct kept_version, forced, false),
	FIELD_U64_OR_0(struct kept_version, force_at_ms),
	FIELD_U64_OR_0(struct kept_version, expire_at_ms),
	FIELD_TEXT_MAYBE(struct kept_version, tier, NAME_BYTES_MAX),
	FIELD_BOOL_OR(struct kept_version, restores, false),
	FIELD_U64_OR_0(struct kept_version, last_used_ms),
	FIELD_U64_OR_0(struct kept_version, stale_leases),
	FIELD_TEXTS(struct kept_version, pins, PINS_PER_VERSION_MAX, NAME_BYTES_MAX),
};
const struct record kept_version_record = {RECORD(struct kept_version, version_rows)};

static const struct record_field fixed_rows[] = {
	FIELD_TEXT(struct kept_fixed, model, NAME_BYTES_MAX),
	FIELD_TEXT(struct kept_fixed, tag, NAME_BYTES_MAX),
	FIELD_ID(struct kept_fixed, id),
	FIELD_ID(struct kept_fixed, publish),
	FIELD_U64_TO(struct kept_fixed, world, UINT32_MAX),
	FIELD_U64_TO(struct kept_fixed, owner, UINT32_MAX),
	FIELD_BOOL_OR(struct kept_fixed, by_operator, false),
	FIELD_BOOL_OR(struct kept_fixed, cached, false),
	FIELD_ID_MAYBE(struct kept_fixed, companion_of),
	FIELD_MAP_MAYBE(struct kept_fixed, join, struct join_params, &join_record),
	FIELD_U64(struct kept_fixed, created_ms),
	FIELD_U64(struct kept_fixed, ready_ms),
	FIELD_MAP_MAYBE(struct kept_fixed, description, struct description, &description_record),
};
const struct record kept_fixed_record = {RECORD(struct kept_fixed, fixed_rows)};

static const struct record_field fd_rows[] = {
	FIELD_U64(struct kept_fd, name),
	FIELD_U64(struct kept_fd, bytes),
};
static const struct record fd_record = {RECORD(struct kept_fd, fd_rows)};

static const struct record_field origin_rows[] = {
	FIELD_U64_TO(struct kept_origin, is, PART_SEGMENTS_MAX - 1),
	FIELD_ID(struct kept_origin, version),
	FIELD_U64_TO(struct kept_origin, segment, PART_SEGMENTS_MAX - 1),
};
const struct record kept_origin_record = {RECORD(struct kept_origin, origin_rows)};

static const struct record_field part_rows[] = {
	FIELD_U64_TO(struct kept_part, rank, UINT32_MAX),
	FIELD_TEXT(struct kept_part, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct kept_part, tensors),
	FIELD_ID(struct kept_part, layout),
	FIELD_ID(struct kept_part, content),
	FIELD_MAP(struct kept_part, index, struct kept_fd, &fd_record),
	FIELD_MAPS(struct kept_part, segments, PART_SEGMENTS_MAX, struct kept_fd, &fd_record),
	FIELD_U64S_MAYBE(struct kept_part, memfds, PART_SEGMENTS_MAX),
	FIELD_MAPS_MAYBE(struct kept_part, origins, PART_SEGMENTS_MAX, struct kept_origin, &kept_origin_record),
};
const struct record kept_part_record = {RECORD(struct kept_part, part_rows)};

static const struct record_field region_rows[] = {
	FIELD_ID(struct kept_region, id),
	FIELD_TEXT_MAYBE(struct kept_region, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct kept_region, device, DEVICE_BYTES_MAX),
	FIELD_TEXT(struct kept_region, kind, NAME_BYTES_MAX),
	FIELD_U64_TO(struct kept_region, uid, UINT32_MAX),
	FIELD_BOOL(struct kept_region, by_operator),
	FIELD_BOOL(struct kept_region, many_writers),
	FIELD_BOOL(struct kept_region, owned_by_uid),
	FIELD_U64(struct kept_region, bytes),
	FIELD_U64(struct kept_region, memory_bytes),
	FIELD_U64_TO(struct kept_region, item_bytes, QUEUE_CELL_BYTES_MAX),
	FIELD_U64(struct kept_region, ttl_ms),
	FIELD_U64_TO(struct kept_region, chunks, REGION_CHUNKS_MAX),
	FIELD_U64_OR(struct kept_region, blocks, 0, REGION_BLOCKS_MAX),
	FIELD_U64_OR_0(struct kept_region, block_bytes),
	FIELD_BOOL_OR(struct kept_region, clear, false),
	FIELD_U64(struct kept_region, created_ms),
	FIELD_U64(struct kept_region, memory),
	FIELD_U64(struct kept_region, control),
	FIELD_U64_OR(struct kept_region, ended, CONTROL_OPEN, CONTROL_ENDS - 1),
	FIELD_U64_OR(struct kept_region, ended_by, 0, REGION_USERS_MAX - 1),
	FIELD_ERROR_MAYBE(struct kept_region, error),
	FIELD_U64_MAYBE(struct kept_region, holder),
	FIELD_ID_MAYBE(struct kept_region, written_by),
};
const struct record kept_region_record = {RECORD(struct kept_region, region_rows)};

static const struct record_field region_user_rows[] = {
	FIELD_ID(struct kept_region_user, use),
	FIELD_U64_TO(struct kept_region_user, slot, REGION_USERS_MAX - 1),
	FIELD_U64_TO(struct kept_region_user, uid, UINT32_MAX),
	FIELD_U64_TO(struct kept_region_user, pid, UINT32_MAX),
	FIELD_U64(struct kept_region_user, pidfd),
	FIELD_TEXT(struct kept_region_user, command, NAME_BYTES_MAX),
	FIELD_BOOL(struct kept_region_user, by_operator),
	FIELD_BOOL(struct kept_region_user, write),
	FIELD_BOOL(struct kept_region_user, owns),
	FIELD_U64(struct kept_region_user, since_ms),
};
const struct record kept_region_user_record = {RECORD(struct kept_region_user, region_user_rows)};
