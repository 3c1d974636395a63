/* A region that this process has open: its memory and its control memory, both mapped. */
#ifndef GPUWM_LIB_REGION_H
#define GPUWM_LIB_REGION_H

#include "../lib/request/client.h"
#include "../../memory/memory.h"
#include "../../base/reaper.h"
#include "../../include/gpuwm/region.h"
#include "../../proto/control.h"
#include "../../proto/wire/messages_region.h"

#include <pthread.h>

/* Whether this process holds scratch memory, as far as its own functions know. */
enum region_scratch { SCRATCH_IDLE, SCRATCH_CHANGES /* a thread asks gpuwmd */, SCRATCH_HELD };

struct gpuwm_region {
	struct keep keep; /* used by exports of chunks that are being filled */
	struct fork_hook hook;
	struct gpuwm_client *client; /* NULL: no gpuwmd knows of this use, as in tests */
	struct version_id id, use;
	char id_text[VERSION_ID_TEXT], name[NAME_BYTES_MAX + 1];
	enum gpuwm_region_kind kind;
	enum gpuwm_writers writers;
	enum gpuwm_owner owner;
	uint64_t bytes, block_bytes, ttl_ms;
	uint32_t item_bytes; /* of a queue's cell */
	unsigned slot;
	bool writes, owns;
	bool looks; /* only the control memory is mapped: device has no ops, and memory no address */
	bool clear; /* of scratch */
	bool holds_context; /* of the device; whoever changes `scratch` sets it */
	_Atomic enum region_scratch scratch;
	struct gpuwm_client *line; /* for calls that wait for scratch memory; NULL: none has begun */
	int control_fd, memory_fd; /* -1 once both are mapped */
	struct memory_device device;
	struct memory_segment memory;
	struct control control; /* head NULL: it is not mapped */
	pthread_mutex_t words_lock;
	bool words; /* under words_lock, as device.peers: streams can write and wait for words of the control memory */
	struct pool *pool; /* of the process that allocates; else NULL */
	struct blocks *blocks; /* NULL: the region has none */
	/* Between threads of this process; control_head.lock is between processes. */
	pthread_mutex_t queue_lock;
	pthread_cond_t queue_unlocked;
	bool queue_is_locked; /* under queue_lock */
	_Atomic uint32_t handles; /* chunks of this process that were not finished yet */
	struct gpuwm_region *next; /* in the list of open regions */
};

/* Makes a region of gpuwmd's answer. It has no descriptors yet: the caller sets both, under fork_lock. client may be NULL. Fails
 * with -ENOMEM, and as region_kind_of. */
int region_begin(struct gpuwm_client *client, const struct region_use *use, struct gpuwm_region **ret,
		 struct error *error);
/* Maps memory and control memory. Fails with -EPROTO, and as memory_device_open and memory_ops.map_shared. */
int region_map(struct gpuwm_region *region, struct error *error);
/* Closes the descriptors, which nothing needs once both are mapped. */
void region_close_fds(struct gpuwm_region *region);
/* Unmaps and frees it. On a GPU the caller has made the device idle. */
void region_free(struct gpuwm_region *region);

/* Adds it to the process's list of open regions. Fails with -EALREADY. */
int region_list_add(struct gpuwm_region *region, struct error *error);
void region_list_remove(struct gpuwm_region *region);
/* Returns the open region with this id with one more handle, so that it stays open, or NULL. */
struct gpuwm_region *region_list_use(const struct version_id *id);
/* Ends that. */
void region_unuse(struct gpuwm_region *region);

/* Begins to close the region: from then on nothing of it can be used. Fails with -EBUSY if chunks or exports of it are alive.
 * region_claim_undo ends the attempt. */
int region_claim(struct gpuwm_region *region, struct error *error);
void region_claim_undo(struct gpuwm_region *region);

/* Checks that a region of this kind can be used by this process, whether or not it has ended. Fails with -EINVAL and -ECHILD. */
int region_usable(const struct gpuwm_region *region, enum gpuwm_region_kind kind, struct error *error);
/* Checks that it takes new work. Fails with -EOWNERDEAD and -ESHUTDOWN. */
int region_running(const struct gpuwm_region *region, struct error *error);

/* "pool", "queue", …: as messages say it, to gpuwmd and to people. */
const char *region_kind_name(enum gpuwm_region_kind kind);
/* Sets *ret to the kind of this name. Returns 0. Fails with -ENOTSUP if a later gpuwmd has made a region of a kind that this library does
 * not know; the message names it. */
int region_kind_of(const char *name, enum gpuwm_region_kind *ret, struct error *error);
/* How messages name it. */
const char *region_title(const struct gpuwm_region *region);
/* How messages name the process in a slot: "process 12 (python)". */
#define REGION_USER_TEXT 96
void region_user_text(const struct gpuwm_region *region, unsigned slot, char ret[REGION_USER_TEXT]);

/* ---- words of its control memory that streams write and wait for ---- */

/* Puts a store of the value, or a wait for it, into a stream of the region's device. The first call registers the control memory with
 * the driver. Fails with -ENOTSUP (the region is on host, or the device can't), -EBUSY (the stream is being captured), -EIO and
 * -ENOMEM. */
int region_words_write(struct gpuwm_region *region, void *stream, _Atomic uint64_t *word, uint64_t value,
		       struct error *error);
int region_words_wait(struct gpuwm_region *region, void *stream, _Atomic uint64_t *word, uint64_t value,
		      struct error *error);
/* Whether streams may finish with chunks of the region. Nobody rings the bell then. */
bool region_words_exist(const struct gpuwm_region *region);
/* Waits until the device is idle, and ends the registration. */
int region_words_end(struct gpuwm_region *region, struct error *error);

/* ---- the options of gpuwm_region_create, for each kind of region (region_options.c) ---- */

/* Fails with -EINVAL. What only gpuwmd can know, as whether there is the device, is not checked here. */
int region_options_check(const struct gpuwm_region_options *options, struct error *error);
/* The request for it, without `use`. Its texts are the options'. */
struct region_create_params region_options_params(const struct gpuwm_region_options *options);

#endif
