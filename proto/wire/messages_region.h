/* Messages: regions, memory that stays writable. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_REGION_H
#define GPUWM_PROTO_MESSAGES_REGION_H

#include "message_form.h"
#include "record.h"

/* The words of the kinds, in messages and in gpuwmd's state. region_rules.c has what a region of each may have. gpuwmd has a struct
 * region_kind for each (daemon/ledger/region.h), the library an enum gpuwm_region_kind (client/region/region.c). */
#define REGION_KIND_POOL "pool"
#define REGION_KIND_QUEUE "queue"
#define REGION_KIND_BLOCKS "blocks"
#define REGION_KIND_SCRATCH "scratch"
#define REGION_WRITERS_ONE "one"
#define REGION_WRITERS_MANY "many"
#define REGION_OWNER_PROCESS "process"
#define REGION_OWNER_UID "uid"

extern const struct message_form form_region_create;
struct region_create_params {
	const char *name; /* NULL: only its id names it */
	const char *device, *kind, *writers, *owner;
	uint64_t bytes; /* of a queue: a multiple of item_bytes */
	uint64_t chunks, item_bytes, ttl_ms; /* item_bytes: of a queue's cell, with its head */
	uint64_t blocks, block_bytes; /* of blocks */
	bool clear; /* of scratch: each holder finds it cleared */
	/* Random: a process that asks again with the same one, because the answer was lost, gets the same slot. NULL: gpuwmd makes one. */
	const struct version_id *use;
	int64_t wait_ms; /* for versions of the user that are on their way to be freed: 0: not at all; -1: for ever */
};

/* Checks what a region is to be: a request, or what gpuwmd's state says of a region. params: a struct region_create_params. Returns 0. Fails
 * with -EINVAL; the message names an unknown kind, and what a region of this kind can't have. */
int region_create_check(const void *params, struct error *error);

/* What a user of a region gets: of region_create and of region_open. */
struct region_use {
	const struct version_id *region, *use; /* use: a secret of the process, which gives the slot back */
	const char *name, *device, *kind, *writers, *owner;
	uint64_t bytes, chunks, item_bytes, blocks, block_bytes, ttl_ms;
	bool clear;
	uint64_t slot;
	bool write, owns;
	uint64_t control, memory; /* positions of their descriptors */
};

extern const struct message_form form_region_open;
struct region_open_params {
	const char *region; /* its name or id */
	bool write; /* the memory's descriptor is for writing */
	bool own; /* the process becomes the owner, who allocates: of a region that belongs to a uid, and has no owner now */
	const struct version_id *use; /* as of region_create */
	int64_t wait_ms; /* as of region_create */
};

extern const struct message_form form_region_close;
struct region_close_params {
	const struct version_id *use;
};

extern const struct message_form form_region_remove;
struct region_remove_params {
	const char *region;
};

/* Scratch memory has one holder at a time. Asks for it, and is answered when it is this use's turn, in the order of asking. The use that
 * holds it already is answered at once. Errors: ETIMEDOUT names the holder; EINVAL: the region is no scratch; ENOENT: no such use. */
extern const struct message_form form_scratch_acquire;
struct scratch_acquire_params {
	const struct version_id *use;
	int64_t wait_ms; /* 0: not at all; -1: for ever */
};
struct scratch_acquire_result {
	bool clear; /* the memory is to be cleared before it is used: somebody else has held it, and the region asks for that */
};
/* Gives it to the next one. A use that does not hold it, and does not wait for it, is no error. */
extern const struct message_form form_scratch_release;
struct scratch_release_params {
	const struct version_id *use;
	/* The use has not cleared the memory, nor written into it, since it got it: of a process that has given up waiting for the answer,
	 * or could not clear the memory. The use is then told to clear it when it asks again. */
	bool untouched;
};

extern const struct message_form form_region_list;
struct region_list_params {
	const char *region; /* NULL: all that the peer sees */
};
/* The map also has the array `regions`. */
struct region_list_result {
	uint64_t seq;
};
/* The map also has the arrays `users` and, if the region was asked for by name or id, `oldest`. */
struct region_told {
	const struct version_id *region;
	const char *name, *device, *kind, *writers, *owner, *state;
	uint64_t owner_uid, bytes, created_ms;
	uint64_t chunks, chunks_used, messages;
	uint64_t blocks, block_bytes;
	/* Of a region of blocks that was not counted, since the list has too many of them (REGION_LIST_BLOCKS_MAX), these are NULL. */
	const uint64_t *bytes_used, *blocks_owned, *blocks_ready,
		*blocks_held; /* the held ones are not counted as ready */
	const uint64_t *holder; /* of scratch: the slot; NULL: nobody */
	uint64_t waiting; /* of scratch: how many ask for it */
	const uint64_t *largest_free; /* NULL: of a list of all regions */
	const struct error *error; /* why it has ended */
};
struct region_user_told {
	uint64_t slot, pid, uid;
	const char *command;
	bool write, owns;
	uint64_t since_ms;
	const uint64_t *holds; /* chunks that it holds or is expected to take; NULL: of a list of all regions */
};
/* The chunks that have been in use for longest. */
struct region_chunk_told {
	uint64_t chunk, offset, bytes, age_ms;
	struct {
		const uint64_t *items;
		uint32_t count;
	} holders, awaited; /* slots */
	uint64_t open; /* further readers that may come */
};
extern const struct record region_told_record, region_user_told_record, region_chunk_told_record;

/* How many blocks gpuwmd counts for a list of all regions: 1,000,000 take 1.5 ms. */
#define REGION_LIST_BLOCKS_MAX (4 * REGION_BLOCKS_MAX)
/* How many chunks `oldest` has of each region. */
#define REGION_OLDEST_TOLD 8

/* ---- with the loader that makes the memory -------------------------------- */

extern const struct message_form form_job_region;
struct job_region_params {
	const struct version_id *region;
	const char *device;
	uint64_t bytes;
};

/* From the loader: the memory, which its descriptor comes with. */
extern const struct message_form form_loader_region;
struct loader_region_params {
	const struct version_id *region;
	uint64_t memory; /* the position of its descriptor */
	uint64_t bytes; /* a multiple of the device's granularity */
};

#endif
