/* What snapshot_take.c, snapshot_version.c and snapshot_taking.c share. No other file includes it. */
#ifndef GPUWM_DAEMON_SNAPSHOT_INTERNAL_H
#define GPUWM_DAEMON_SNAPSHOT_INTERNAL_H

#include "snapshot.h"
#include "snapshot_records.h"

#include <fcntl.h>

/* Twice the descriptors, so that chains stay short. */
#define NAME_SLOTS (2 * STORE_FDS_MAX)

/* A descriptor that the map names. */
struct taken_name {
	uint64_t name; /* 0: an empty slot */
	struct segment *segment; /* with a use of the table's; NULL: it is an index */
	const struct device *device;
	bool by_operator; /* what the versions that hold the segment have in common */
	uint32_t version; /* the last one that holds it */
};

struct taking {
	const struct snapshot_fds *fds;
	struct snapshot *into;
	msgpack_zone *zone; /* of the map: what its records point to */
	struct error *error;
	struct version_id
		*lost; /* versions that were not adopted; the registry may have forgotten their entries */
	uint64_t lost_count, lost_room;
	uint64_t greatest_name;
	uint32_t name_count;
	uint32_t version; /* counts the versions that were read, from 1 */
	struct taken_name names[NAME_SLOTS]; /* a hash table */
};

/* Names one entry of one of the map's arrays in error messages: versions[3] (m@v1). */
struct place {
	const char *array;
	uint32_t position;
	char what[2 * NAME_BYTES_MAX + 8];
};

/* Leaves a record out, because of t->error, and adds it to t->into->unread. -ENOMEM. */
int taking_leave(struct taking *t, const char *array, const msgpack_object *record);

/* In snapshot_taking.c. Each sets the error of snapshot_take and returns its code: -EUCLEAN with the place, or -ENOMEM. */
int taking_wrong(struct taking *t, const struct place *place, const struct error *why);
int taking_no_memory(struct error *error);
/* The same without a place: the map itself is wrong. */
int taking_refused(struct taking *t, const struct error *why);
/* The same for a record that says whose a model is: closes the model for others. It belongs to `owner` from then on; NULL: to operators.
 * model NULL, or no name: any new name may be that of the model. */
int taking_close_model(struct taking *t, const char *model, const struct model_owner *owner,
		       const struct place *place, const struct error *why);
/* Says in the place what is read: " (m@v1)". A name that is not known is NULL. */
void place_name(struct place *place, const char *model, const char *tag);
/* Notes that a version was in the state and was not adopted. -ENOMEM. */
int taking_keep_lost(struct taking *t, const struct version_id *id, struct error *error);
/* Returns whether taking_keep_lost has noted the version. */
bool taking_is_lost(const struct taking *t, const struct version_id *id);

/* Notes the descriptor of an index. Fails with -EINVAL (no descriptor has this name), -EEXIST and -EDQUOT. */
int taking_index(struct taking *t, uint64_t name, struct error *error);
/* Returns in *ret the segment with this name, which belongs to the table: a new one, or the one that another version has too. Fails
 * with -EINVAL (also if the other version tells other bytes or another device, or a user made one of the two), -EEXIST (the
 * same version has it already, or an index), -EDQUOT and -ENOMEM. */
int taking_segment(struct taking *t, const struct taken_name *like, uint64_t bytes, struct segment **ret,
		   struct error *error);
/* Ends the table's uses of segments. */
void taking_clear_names(struct taking *t);

/* The seals of memory that nobody can change any more. */
#define SEALS_READ_ONLY (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK)

/* In snapshot_region.c. Like take_version and take_fds below, of regions. */
int take_region(struct taking *t, const msgpack_object *o, struct place *place);
void take_region_fds(const struct taking *t);

/* In snapshot_version.c. Reads a version with its parts. Its descriptors stay with t->fds. */
int take_version(struct taking *t, const msgpack_object *o, struct place *place);
/* Takes the descriptors of all versions. Call it last, so that after an error no descriptor was taken. */
void take_fds(const struct taking *t);

#endif
