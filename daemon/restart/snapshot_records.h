/* The maps of a state: a struct and a record for each, by which it is written and read. proto/wire/record.h says how a struct
 * holds what a map says. */
#ifndef GPUWM_DAEMON_SNAPSHOT_RECORDS_H
#define GPUWM_DAEMON_SNAPSHOT_RECORDS_H

#include "../ledger/registry.h"
#include "../../proto/wire/messages_publish.h"

/* The map also has the arrays `devices`, `versions`, `aliases`, `owners`, `claims` and `regions`. */
struct kept_state {
	const struct version_id *ledger;
	uint64_t epoch, next_name, scrub_from_ms;
	bool described;
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
/* The map also has the map `fixed` and, if leases were revoked, the array `revoked` (ledger/registry.h). */
struct kept_version {
	const char *state;
	const struct error *error, *tainted;
	uint64_t lost_parts; /* which parts lay on a device that was lost: a bit for each, by position */
	bool forced;
	uint64_t force_at_ms, expire_at_ms;
	const char *tier; /* NULL: an older gpuwmd wrote it, or the version lies on its devices */
	bool restores;
	uint64_t last_used_ms, stale_leases;
	struct {
		const char *const *items;
		uint32_t count;
	} pins;
};
/* What changes only when the version moves to another tier, or is described. The map also has the array `parts`. */
struct kept_fixed {
	const char *model, *tag;
	const struct version_id *id, *publish;
	uint64_t world, owner;
	bool by_operator, cached;
	const struct version_id *companion_of; /* NULL: of none */
	const struct join_params *join;
	uint64_t created_ms, ready_ms;
	const struct description *description;
};
/* A descriptor, by its name in the fd store. */
struct kept_fd {
	uint64_t name, bytes;
};
/* What a load found a segment to be equal to (ledger/registry.h): the segment `is` of the part has the origin `version`, `segment`. */
struct kept_origin {
	uint64_t is;
	const struct version_id *version;
	uint64_t segment;
};
struct kept_origins {
	const struct kept_origin *items;
	uint32_t count;
};
/* A segment that does not lie on `device` has the name 0. A gpuwmd that knows no tiers refuses such a state, and lets nothing go. */
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
	struct {
		const uint64_t *items;
		uint32_t count;
		/* The names of the segments in host memory, if the version lies there and the part does not belong there; or of its host
		 * copy, which an older gpuwmd does not look for, and lets go. items NULL: there are none. */
	} memfds;
	struct kept_origins origins; /* of segments that are not their own origin; items NULL: of none */
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
/* Lists the part's origins in `items`. */
struct kept_origins kept_origins_of(const struct version *version, const struct replica *replica,
				    struct kept_origin items[PART_SEGMENTS_MAX]);
/* Sets part->origins, malloced, of a part of a version with this id that has `count` segments. Fails with -EINVAL (there is no such
 * segment, or it is there twice) and -ENOMEM. */
int kept_origins_take(const struct kept_origins *kept, const struct version_id *version, uint32_t count,
		      struct replica *part, struct error *error);
/* The keys of a version that a state and a description both have. Writes them into the open map. */
void kept_fixed_put(struct message_writer *w, const struct version *version);
/* Sets what they say in `like`, whose state is set, for registry_adopt. like->joiners is `joiners`, or NULL. */
void kept_fixed_take(const struct kept_fixed *fixed, struct version *like, struct joiners *joiners);
struct kept_device kept_device_of(const struct device *device);
/* Adds a device that is not in the table. Fails with -EINVAL, -ENOMEM and -ENOSPC. */
int kept_device_add(struct device_table *table, const struct kept_device *kept, struct error *error);

extern const struct record kept_region_record, kept_region_user_record;
extern const struct record kept_origin_record;
extern const struct record kept_state_record, kept_device_record, kept_alias_record, kept_owner_record,
	kept_claim_record, kept_version_record, kept_fixed_record, kept_part_record;

#endif
