/* The maps of descriptions: a struct and a record for each, by which it is written and read. */
#ifndef GPUWM_DAEMON_DESCRIPTION_RECORDS_H
#define GPUWM_DAEMON_DESCRIPTION_RECORDS_H

#include "snapshot_records.h"

/* A part, without its memory. */
struct described_part {
	uint64_t rank;
	const char *device;
	uint64_t tensors, index_bytes;
	const struct digest *layout, *content;
	struct {
		const uint64_t *items; /* the bytes of each segment */
		uint32_t count;
	} segments;
};
/* The body of a version's file. */
struct described_version {
	const struct kept_fixed *fixed; /* with its description */
	struct {
		const struct kept_device *items;
		uint32_t count;
	} devices;
	struct {
		const struct described_part *items;
		uint32_t count;
	} parts;
};
extern const struct record described_part_record, described_version_record;

/* What names say of a version. */
struct named_version {
	const struct version_id *id;
	const struct digest *key; /* of the file of the version */
	bool resident; /* it lay on its devices, or was on its way there */
	bool left; /* its file could not be read, and the next start tries again */
	bool unnamed; /* `left`, and nothing says its model */
	uint64_t last_used_ms;
	struct {
		const char *const *items;
		uint32_t count;
	} pins;
};
/* The body of the names' file. */
struct described_names {
	struct {
		const struct kept_device *items;
		uint32_t count;
	} devices;
	struct {
		const struct named_version *items;
		uint32_t count;
	} versions;
	struct {
		const struct kept_alias *items;
		uint32_t count;
	} aliases;
	struct {
		const struct kept_owner *items;
		uint32_t count;
	} owners;
};
extern const struct record named_version_record, described_names_record;

#endif
