#include "description_records.h"

/* Those of the ledger, and as many that could not be read. */
#define DESCRIBED_VERSIONS_MAX (2 * VERSIONS_MAX)
/* A model has them besides `current` and `previous`; each model has a version. */
#define DESCRIBED_ALIASES_MAX (DESCRIBED_VERSIONS_MAX * (ALIASES_PER_MODEL_MAX + 2))

static const struct record_field part_rows[] = {
	FIELD_U64_TO(struct described_part, rank, UINT32_MAX),
	FIELD_TEXT(struct described_part, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct described_part, tensors),
	FIELD_U64(struct described_part, index_bytes),
	FIELD_ID(struct described_part, layout),
	FIELD_ID(struct described_part, content),
	FIELD_U64S(struct described_part, segments, PART_SEGMENTS_MAX),
};
const struct record described_part_record = {RECORD(struct described_part, part_rows)};

static const struct record_field version_rows[] = {
	FIELD_MAP(struct described_version, fixed, struct kept_fixed, &kept_fixed_record),
	FIELD_MAPS(struct described_version, devices, DEVICES_MAX, struct kept_device, &kept_device_record),
	FIELD_MAPS(struct described_version, parts, PARTS_PER_VERSION_MAX, struct described_part,
		   &described_part_record),
};
const struct record described_version_record = {RECORD(struct described_version, version_rows)};

static const struct record_field named_rows[] = {
	FIELD_ID(struct named_version, id),
	FIELD_ID(struct named_version, key),
	FIELD_BOOL_OR(struct named_version, resident, false),
	FIELD_BOOL_OR(struct named_version, left, false),
	FIELD_BOOL_OR(struct named_version, unnamed, false),
	FIELD_U64_OR(struct named_version, last_used_ms, 0, UINT64_MAX),
	FIELD_TEXTS(struct named_version, pins, PINS_PER_VERSION_MAX, NAME_BYTES_MAX),
};
const struct record named_version_record = {RECORD(struct named_version, named_rows)};

static const struct record_field names_rows[] = {
	FIELD_MAPS(struct described_names, devices, DEVICES_MAX, struct kept_device, &kept_device_record),
	FIELD_MAPS(struct described_names, versions, DESCRIBED_VERSIONS_MAX, struct named_version,
		   &named_version_record),
	FIELD_MAPS(struct described_names, aliases, DESCRIBED_ALIASES_MAX, struct kept_alias,
		   &kept_alias_record),
	FIELD_MAPS(struct described_names, owners, DESCRIBED_VERSIONS_MAX, struct kept_owner,
		   &kept_owner_record),
};
const struct record described_names_record = {RECORD(struct described_names, names_rows)};
