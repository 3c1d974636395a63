/* The maps of a state: a struct and a record for each, by which it is written and read. proto/record.h says how a struct
 * holds what a map says. */
#ifndef GPUWM_DAEMON_SNAPSHOT_RECORDS_H
#define GPUWM_DAEMON_SNAPSHOT_RECORDS_H

#include "../../proto/messages_publish.h"

/* The map also has the arrays `devices`, `versions`, `aliases`, `owners`, `claims` and `regions`. */
struct kept_state {
	const struct version_id *ledger;
	uint64_t epoch, next_name, scrub_from_ms;
};
struct kept_device {
	const char *id, *kind, *name;
	uint64_t total, granularity, context;
	const struct error *lost;
};
struct kept_alias {
	const char *model, *name;
	const struct version_id *version;
	uint64_t generation;
	const struct version_id
		*before; /* NULL: none, or `previous` tells it. An older gpuwmd does not write it */
};
struct kept_owner {
	const char *model;
	uint64_t uid;
	bool by_operator;
};
struct kept_claim {
	const char *model, *tag;
	uint64_t uid;
};
/* The map also has the map `fixed` and, if leases were revoked, the array `revoked` (registry.h). */
struct kept_version {
	const char *state;
	const struct error *error, *tainted;
	uint64_t lost_parts; /* which parts lay on a device that was lost: a bit for each, by position */
	bool forced;
	uint64_t force_at_ms, expire_at_ms;
	struct {
		const char *const *items;
		uint32_t count;
	} pins;
};
/* What never changes once a version is ready. The map also has the array `parts`. */
struct kept_fixed {
	const char *model, *tag;
	const struct version_id *id, *publish;
	uint64_t world, owner;
	bool by_operator, cached;
	const struct join_params *join;
	uint64_t created_ms, ready_ms;
};
/* A descriptor, by its name in the fd store. */
struct kept_fd {
	uint64_t name, bytes;
};
struct kept_part {
	uint64_t rank;
	const char *device;
	uint64_t tensors;
	const struct digest *layout, *content;
	const struct kept_fd *index;
	struct {
		const struct kept_fd *items;
		uint32_t count;
	} segments;
};
/* The map also has the array `users`. memory and control: their names in the fd store. */
struct kept_region {
	const struct version_id *id;
	const char *name, *device, *kind;
	uint64_t uid;
	bool by_operator, many_writers, owned_by_uid, clear;
	uint64_t bytes, memory_bytes, item_bytes, block_bytes, ttl_ms, chunks, blocks, created_ms;
	uint64_t memory, control; /* memory: 0 if the region has ended */
	uint64_t ended, ended_by; /* enum control_end */
	const struct error *error; /* why it has ended; NULL: it is ready */
	const uint64_t *holder; /* of scratch memory: the slot; NULL: nobody */
	const struct version_id *written_by; /* of scratch memory; NULL: nobody */
};
struct kept_region_user {
	const struct version_id *use;
	uint64_t slot, uid, pid, pidfd; /* pidfd: its name in the fd store */
	const char *command;
	bool by_operator, write, owns;
	uint64_t since_ms;
};
extern const struct record kept_region_record, kept_region_user_record;
extern const struct record kept_state_record, kept_device_record, kept_alias_record, kept_owner_record,
	kept_claim_record, kept_version_record, kept_fixed_record, kept_part_record;

#endif
