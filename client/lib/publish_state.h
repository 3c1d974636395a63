/* The inside of a publish, for the files that make it up. */
#ifndef GPUWM_LIB_PUBLISH_STATE_H
#define GPUWM_LIB_PUBLISH_STATE_H

#include "alive.h"
#include "call.h"
#include "attach.h"
#include "publish.h"
#include "../../proto/index.h"

#include <pthread.h>

struct gpuwm_publish {
	struct gpuwm_client *client;
	uint64_t round; /* of the connection that it was begun on: gpuwmd ends it with that one */
	struct fork_hook hook;
	pthread_mutex_t lock; /* of the builder: metadata and files come from any thread */
	char id[VERSION_ID_TEXT], version[VERSION_ID_TEXT];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1];
	uint32_t world;
	struct memory_device device;
	bool bare; /* the loader's: contexts and zeros are its own care */
	bool held; /* the device: until freed */
	struct connection *checker; /* NULL for a loader */
	struct alive alive; /* from the begin to the end */
	struct plan plan;
	struct memory_range range; /* where all segments lie */
	pthread_mutex_t making; /* of segments, step by step */
	struct memory_segment *segments; /* made, they are mapped for writing until sealed */
	struct gpuwm_mapping *mapping; /* whom exports use: gets the memory in the end. NULL for a loader */
	bool stays; /* from the commit on: the memory is not unmapped for it */
	bool read_only; /* nobody writes any more */
	uint8_t *made; /* bytes, one for each segment: it is there, mapped and zeroed */
	size_t tensor_count;
	struct digest *digests; /* one for each spec */
	uint8_t *have_digest; /* bytes, not bits: set by several threads */
	struct index_builder *builder;
	struct publish_part part; /* once sealed */
};

/* Reserves the addresses of all segments, and makes them now unless `stepwise`. */
int publish_memory_begin(struct gpuwm_publish *publish, bool stepwise, struct error *error);
/* Makes a segment, zeroed and mapped for writing, unless it is there already. Any thread. */
int publish_memory_need(struct gpuwm_publish *publish, uint32_t segment, struct error *error);
/* Makes all that are not there yet. */
int publish_memory_all(struct gpuwm_publish *publish, struct error *error);
bool publish_has_exports(const struct gpuwm_publish *publish);
/* Where tensor `position` is written to; makes the memory if need be. -ERANGE. */
int publish_place(struct gpuwm_publish *publish, size_t position, void **ret_data, uint64_t *ret_bytes,
		  struct error *error);
/* Takes write access away, so that segments can be exported: where the memory stays they are mapped for reading
 * then, else not at all. The device is idle. -ENOTRECOVERABLE: they are lost. */
int publish_memory_close(struct gpuwm_publish *publish, struct error *error);
/* Gives it back where exports use the memory. -ENOTRECOVERABLE. */
int publish_memory_reopen(struct gpuwm_publish *publish, struct error *error);
/* The memory becomes the mapping's. */
void publish_memory_give(struct gpuwm_publish *publish);
/* Gives memory and addresses up, once the device is idle; exports keep them. Twice is fine. */
void publish_memory_end(struct gpuwm_publish *publish);

/* publish_seal in its parts: of a device that is idle. */
int publish_seal_idle(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		      const struct publish_part **ret_part, struct error *error);
/* One of the calls that end a publish, of a device that is idle. */
typedef int publish_commit_fn(struct gpuwm_publish *publish, void *ret, struct error *error);
/* What the caller of such a call gets. -EINVAL: NULL; -ECHILD; -EBUSY: a stream is being captured: the publish goes on
 * then, and in no other case. */
int publish_end_with(struct gpuwm_publish *publish, publish_commit_fn *commit, void *ret);
/* Hands the sealed part in, and commits it. 0; 1: the alias was not moved, and *error says why. *ret_waits: other
 * parts are still to come. When it fails gpuwmd has been told, and the memory is where it can be as it was. */
int publish_hand_over(struct gpuwm_publish *publish, const struct publish_part *part, bool *ret_waits,
		      struct error *error);
/* After a commit failed with r: gpuwmd may have made a version of it all the same, or may yet. On a GPU its
 * memory must not change then; on host it is sealed, and can't. */
bool publish_may_be_ready(const struct gpuwm_publish *publish, int r);
/* After a failure: gpuwmd is told (unless it knows), the memory is given back. The failure, or -ENOTRECOVERABLE. */
int publish_fail(struct gpuwm_publish *publish, bool tell, int r, struct error *error);
void publish_describe(const struct gpuwm_publish *publish, struct gpuwm_version_info *ret);

/* publish_abort, as a request; the publish stays, but not its memory: gpuwmd
 * gives the budget to others as soon as it hears of this. 0 also when it ended
 * with its connection. */
int publish_tell_abort(struct gpuwm_publish *publish, const char *reason, struct error *error);

#endif
