/* What snapshot_take.c and snapshot_version.c share; nobody else. */
#ifndef GPUWM_DAEMON_SNAPSHOT_INTERNAL_H
#define GPUWM_DAEMON_SNAPSHOT_INTERNAL_H

#include "snapshot.h"

/* Twice the descriptors, so that chains stay short. */
#define NAME_SLOTS (2 * STORE_FDS_MAX)

struct taking {
	const struct snapshot_fds *fds;
	struct snapshot *into;
	struct error *error;
	struct version_id *lost; /* their entries may be forgotten already */
	uint64_t lost_count, lost_room;
	uint64_t greatest_name;
	uint32_t name_count;
	uint64_t names[NAME_SLOTS]; /* a hash table; 0: empty */
};

/* One entry of one of the map's arrays, for errors: versions[3] (m@v1). */
struct place {
	const char *array;
	uint32_t position;
	char what[2 * NAME_BYTES_MAX + 8];
};

/* snapshot_take.c. An error of the entry, for the caller of snapshot_take. */
int taking_wrong(struct taking *t, const struct place *place, const struct error *why);
int taking_no_memory(struct error *error);
/* A field of 32 bits. Errors stick to the fields. */
uint32_t taking_u32(struct fields *f, const char *key);

/* snapshot_version.c. A version with its parts; its descriptors stay with t->fds. */
int take_version(struct taking *t, const msgpack_object *o, struct place *place);
/* Takes the descriptors of all versions. Comes last: nothing is taken where something is wrong. */
void take_fds(const struct taking *t);
/* Whether a version was in the state and was not adopted. */
bool taking_is_lost(const struct taking *t, const struct version_id *id);

#endif
