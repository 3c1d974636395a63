/* The kinds of memory that devices have, and what every program knows of a kind without touching memory. A kind is a struct in
 * memory_kind.c, and a row of `memory_kinds` in memory_kinds.c. What a kind does is behind memory/memory.h, and for loaders behind loader/devices/devices.h. */
#ifndef GPUWM_PROTO_MEMORY_KIND_H
#define GPUWM_PROTO_MEMORY_KIND_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICE_HOST "host"

struct memory_kind {
	const char *name; /* in messages */
	const char *device; /* the name of its only device; NULL: its devices have UUIDs */
	const char *prefixes[3]; /* what may stand before a UUID; NULL ends them */
	unsigned
		budget_percent; /* what may be granted of a device, unless the configuration says more precisely */
	/* Its devices are GPUs: the budget "*" is theirs, a load that names no device goes to the only one, and they may be
	 * lost. */
	bool is_gpu;
	bool can_look; /* a segment's descriptor tells its bytes and seals */
	uint64_t
		context_bytes; /* what a process that works on a device takes there for its context; 0: it has none */
};
extern const struct memory_kind kind_host, kind_cuda;

/* All kinds. NULL ends the array. */
extern const struct memory_kind *const memory_kinds[];

/* Returns the kind of this name, or NULL. */
const struct memory_kind *memory_kind_find(const char *name);

/* Returns the kind of the device with this name, or NULL if no device is named so. It looks only at how the name begins. */
const struct memory_kind *memory_kind_of(const char *device);

/* Returns the UUID in a device's name, which follows the prefix, or NULL if the device has none. */
const char *device_uuid(const char *device);

/* Whether both names are of one device: they are the same, or have the same UUID behind different prefixes, in whatever case. A
 * driver may tell only the bytes of a UUID. */
bool device_same(const char *a, const char *b);

/* Returns NULL if `text` can be the name of a device, else what is wrong with it, as the end of a sentence ("has a character
 * other than …"). */
const char *device_wrong(const char *text);

#endif
