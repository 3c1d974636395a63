/* The inside of a publish, for the files publish*.c. */
#ifndef GPUWM_LIB_PUBLISH_STATE_H
#define GPUWM_LIB_PUBLISH_STATE_H

#include "../connection/connection.h"
#include "../request/call.h"
#include "../mapping/attach.h"
#include "publish.h"
#include "../../../proto/index/index.h"

#include <pthread.h>

struct gpuwm_publish {
	struct gpuwm_client *client;
	uint64_t round; /* of the connection on which it began, and with which gpuwmd ends it */
	struct fork_hook hook;
	pthread_mutex_t lock; /* of the builder: metadata and files come from any thread */
	char id[VERSION_ID_TEXT], version[VERSION_ID_TEXT]; /* id: empty before gpuwmd has told it */
	struct version_id publish; /* what id says */
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1];
	bool given; /* gpuwmd gave the memory, and checks it at the commit: one segment, and part.index_fd */
	bool nameless; /* its version has no name; model and tag are what gpuwmd calls it */
	uint32_t world;
	struct memory_device device;
	bool bare; /* the loader's, which sees to contexts and zeros itself */
	bool held; /* it keeps the device's context in being until it is freed */
	struct connection *checker; /* NULL for a loader */
	struct alive alive; /* from its begin to its end */
	struct plan plan;
	struct memory_range range; /* where all segments lie */
	pthread_mutex_t making; /* while segments are made step by step */
	struct memory_segment *segments; /* those that are made are mapped for writing until they are sealed */
	struct gpuwm_mapping
		*mapping; /* exports use it, and it gets the memory in the end; NULL for a loader */
	bool stays; /* the commit does not unmap the memory */
	bool attaches; /* the commit asks for a lease */
	bool read_only; /* no write is possible any more */
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
/* Makes all segments that are not there yet. */
int publish_memory_all(struct gpuwm_publish *publish, struct error *error);
bool publish_has_exports(const struct gpuwm_publish *publish);
/* Sets *ret_data to the address where this tensor is to be written, and makes its memory if it is not there. Fails with -ERANGE. */
int publish_place(struct gpuwm_publish *publish, size_t position, void **ret_data, uint64_t *ret_bytes,
		  struct error *error);
/* Takes write access away, so that the segments can be exported. If the memory stays, they are mapped for reading afterwards, else not
 * at all. The caller has made the device idle. Fails with -ENOTRECOVERABLE if the segments are lost. */
int publish_memory_close(struct gpuwm_publish *publish, struct error *error);
/* Gives write access back if exports use the memory. Fails with -ENOTRECOVERABLE. */
int publish_memory_reopen(struct gpuwm_publish *publish, struct error *error);
/* Moves the memory to the mapping. */
void publish_memory_give(struct gpuwm_publish *publish);
/* Gives memory and addresses up; exports keep them. The caller has made the device idle. A second call does nothing. */
void publish_memory_end(struct gpuwm_publish *publish);

/* As publish_seal, after the caller has made the device idle. */
int publish_seal_idle(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		      const struct publish_part **ret_part, struct error *error);
/* One of the calls that end a publish. The device is idle. */
typedef int publish_commit_fn(struct gpuwm_publish *publish, void *ret, struct error *error);
/* Ends a publish with such a call, and returns its result. Fails with -EINVAL (publish is NULL), -ECHILD, and -EBUSY if a stream is
 * being captured. After -EBUSY the publish goes on, after any other result it has ended. */
int publish_end_with(struct gpuwm_publish *publish, publish_commit_fn *commit, void *ret);
/* What a commit came to. */
struct committed {
	bool waits; /* other parts are still to come */
	uint64_t lease; /* gpuwmd's number of the maker's lease, of a version without a name; 0: none */
	uint64_t round; /* of the connection on which gpuwmd gave it */
};
/* Hands the sealed part in, and commits it. Returns 1 if the alias was not moved; *error says why. Sets *ret. If it fails, it has told gpuwmd, and the memory is as it was, as far as possible. */
int publish_hand_over(struct gpuwm_publish *publish, const struct publish_part *part, struct committed *ret,
		      struct error *error);
/* Returns whether gpuwmd may have made a version of the publish, or may yet, although its commit failed with r. Then its memory must
 * not change; where the kind seals memory, it can't. */
bool publish_may_be_ready(const struct gpuwm_publish *publish, int r);
/* Ends a publish after the failure r: tells gpuwmd, if `tell`, and gives the memory back. Returns r or -ENOTRECOVERABLE. */
int publish_fail(struct gpuwm_publish *publish, bool tell, int r, struct error *error);
void publish_describe(const struct gpuwm_publish *publish, struct gpuwm_version_info *ret);

/* Sends publish_abort. The publish itself stays, but the caller has given its memory back: gpuwmd lets others have the budget as soon
 * as it gets the request. Returns 0 also if the publish has ended with its connection. */
int publish_tell_abort(struct gpuwm_publish *publish, const char *reason, struct error *error);

#endif
