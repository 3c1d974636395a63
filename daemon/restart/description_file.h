/* One file of the folder of descriptions: how it lies on disk, and what its body means.
 *
 * A file begins with a header of 64 bytes, little-endian, the same in every format: magic "GPUWMDS" and a zero, format u32,
 * kind u32 (1: a version, 2: names), body bytes u64, index bytes u64, digest 16 of the header and the body, digest 16 of
 * the indices. The body follows, then the bytes of all indices, each with zeros up to a multiple of 8. In the first digest both digests
 * count as zeros. A file is written under another name, synchronised, and then renamed, so that it is there as a
 * whole or not at all.
 *
 * These functions may be called on any thread. Those that write and open files block. */
#ifndef GPUWM_DAEMON_DESCRIPTION_FILE_H
#define GPUWM_DAEMON_DESCRIPTION_FILE_H

#include "../../proto/index/digest.h"
#include "../../base/errors.h"
#include "snapshot_records.h"
#include "../ledger/ledger.h"

#include <stddef.h>
#include <stdint.h>

/* The format that this program writes. It reads this format and all earlier ones. */
#define DESCRIPTION_FORMAT 1
/* A file that is being written has this at the end of its name. */
#define DESCRIPTION_NEW ".new"

enum description_kind { DESCRIPTION_VERSION = 1, DESCRIPTION_NAMES = 2 };

/* A sealed memfd. Its bytes are copied without being checked. */
struct description_index {
	int fd;
	uint64_t bytes;
};

/* What is to be written. Nothing of it is owned. */
struct description_bytes {
	enum description_kind kind;
	const void *body;
	size_t body_bytes;
	const struct description_index *indices;
	uint32_t index_count;
};
/* Writes the file of this name into the folder, with mode 0600. The folder itself is not synchronised. Returns 0 or -errno; then
 * a file of this name that was there before is unchanged. */
int description_file_write(int folder, const char *name, const struct description_bytes *what);

/* A file that is being read. */
struct description_reading {
	int fd;
	void *body; /* malloced */
	size_t body_bytes;
	uint64_t index_bytes; /* of all indices, with the zeros behind each */
	uint64_t taken; /* of these, so many have been read */
	struct digest promised; /* of the indices */
	struct digest_sum sum;
};
/* Opens a file, copies it into memory, and reads its body. The caller ends the reading with description_file_close. Fails with -ENOENT; -EUCLEAN (the
 * file is no description, is torn, or belongs to another user; the message says which); -EPROTONOSUPPORT (a newer gpuwmd wrote it);
 * -ENOMEM; any other -errno of a call that failed. */
int description_file_open(int folder, const char *name, enum description_kind kind,
			  struct description_reading *ret, struct error *error);
/* Copies the next index into a new memfd with all seals, and sets *ret_fd to it. Fails with -EUCLEAN (the file has no more so
 * many bytes) and any -errno. */
int description_file_index(struct description_reading *reading, uint64_t bytes, int *ret_fd,
			   struct error *error);
/* Checks that all indices were read, and are what was written. Fails with -EUCLEAN. */
int description_file_check(const struct description_reading *reading, struct error *error);
void description_file_close(struct description_reading *reading);

/* ---- its body: description_body.c ----
 * A map of MessagePack, written from the ledger and read back into it. First the maps: a struct and a record for each. */

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
	struct kept_origins origins;
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
/* The next four leave out an entry that can't be adopted, say in the log which one and why, and return how many, or whether it was. */

/* Adds the devices that the ledger does not have, in their order. Call it before description_take. */
uint32_t description_take_devices(const struct described_names *names, struct device_table *table);
/* Sets the members of a taken version that the names' file has. Returns how many pins it left out. */
uint32_t description_take_named(struct version *version, const struct named_version *named);
/* Adds an alias. Returns false if it can't be adopted, or its version is not there. */
bool description_take_alias(const struct kept_alias *kept, const struct ledger *ledger);
/* Sets the owners of models. One whose versions are not there is reserved (registry_adopt_owner). */
uint32_t description_take_owners(const struct described_names *names, struct ledger *ledger);

#endif
