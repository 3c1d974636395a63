/* The bodies of descriptions: maps of MessagePack, written from the ledger and read back into it. */
#ifndef GPUWM_DAEMON_DESCRIPTION_BODY_H
#define GPUWM_DAEMON_DESCRIPTION_BODY_H

#include "description_file.h"
#include "snapshot_records.h"
#include "../ledger/ledger.h"

/* ---- the maps: a struct and a record for each, by which it is written and read ---- */

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

/* ---- versions ---- */

/* Returns whether a version is to be described on disk: it is ready, has a name, and its files are known. */
bool description_is_due(const struct version *version);
/* Writes the body of such a version, whose indices the file has too, in the order of its parts. It has the version's devices, and host,
 * in the order of the table. */
void description_put(struct message_writer *w, const struct version *version,
		     const struct device_table *devices);

/* Versions whose files could not be read, with their aliases, as the names said them: they are written again as they were. An alias
 * that the ledger has by now is left out. */
struct left_names {
	const struct named_version *versions;
	uint32_t version_count;
	const struct kept_alias *aliases;
	uint32_t alias_count;
};

/* The versions whose names are written. */
struct described_registry {
	const struct registry *registry;
	const struct device_table *devices;
	/* Returns whether the version's file is on disk. */
	bool (*has)(void *data, const struct version *version);
	/* Returns a digest that differs between files of a version with different contents. */
	const struct digest *(*key)(void *data, const struct version *version);
	void *data;
	struct left_names left;
};
/* Writes the body of the names: of these versions, of aliases that name them, owners of their models and of reserved models, devices
 * that they are on, with host, and what is left. */
void description_put_names(struct message_writer *w, const struct described_registry *of);

/* The names as they were read; message_clear(&names->message) ends it. */
struct description_names {
	struct message message;
	struct described_names kept;
};
/* Reads the body of the names. The bytes must stay. Fails with -EUCLEAN and -ENOMEM. */
int description_names_read(const void *body, size_t bytes, struct description_names *ret, struct error *error);

/* Reads the file of the version with this id, and adds the version to the ledger on the tier `files`, with its devices where they are not known, and
 * charged to its owner. Fails with -EUCLEAN (the file is wrong), -EEXIST (the id or the name is taken), -EDQUOT, -ENOMEM and
 * other -errno; then the ledger has no such version, but may have its devices. */
int description_take(struct description_reading *reading, const struct version_id *id, struct ledger *ledger,
		     struct version **ret_version, struct error *error);
/* Adds the devices that the ledger does not have, in their order. Call it before description_take. Fails with -EUCLEAN and -ENOMEM. */
int description_take_devices(const struct described_names *names, struct device_table *table,
			     struct error *error);
/* Sets the members of a taken version that the names' file has. Leaves out a pin that can't be adopted. */
void description_take_named(struct version *version, const struct named_version *named);
/* Adds an alias. Returns false if it can't be adopted, or its version is not there. */
bool description_take_alias(const struct kept_alias *kept, const struct ledger *ledger);
/* Sets the owners of models. One whose versions are not there is reserved (registry_adopt_owner). Fails with -ENOMEM. */
int description_take_owners(const struct described_names *names, struct ledger *ledger, struct error *error);

#endif
