/* Messages: versions that programs make. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_PUBLISH_H
#define GPUWM_PROTO_MESSAGES_PUBLISH_H

#include "message_form.h"
#include "record.h"
#include "reference.h"

extern const struct message_form form_publish_begin;
struct join_params {
	struct {
		const uint32_t *items;
		uint32_t count;
	} uids, gids;
};
extern const struct record join_record;
struct cache_params {
	uint64_t ttl_ms, keep_last; /* 0: not given */
	const struct version_id *companion_of; /* NULL: of none */
};
struct publish_begin_params {
	struct reference name; /* may be missing */
	const char *device;
	uint64_t rank, world, bytes;
	const struct version_id *publish;
	const struct join_params *join;
	const char *alias;
	bool give; /* gpuwmd gives the memory */
	const struct cache_params *cache;
	uint64_t segments; /* how many the part will have */
	int64_t wait_ms; /* for versions of the user that are on their way to be freed: 0: not at all; -1: for ever */
	const char *fingerprint; /* from a loader: of the version that it takes from a node */
};
struct publish_begin_result {
	const struct version_id *publish, *version;
	const uint64_t *checker, *alive_ms;
	const uint64_t *index, *segment; /* the positions of the memfds that gpuwmd gives */
	const char *name; /* of a version that has none: how errors and lists call it */
};

extern const struct message_form form_publish_commit;
struct publish_commit_params {
	const struct version_id *publish;
	uint64_t rank;
	const char *device;
	const struct digest *content, *layout;
	const uint64_t *tensors;
	bool attach; /* with a lease of the part, if the version is ready */
};
struct publish_commit_result {
	const struct version_id *version;
	const char *state;
	const struct error *alias_error;
	const uint64_t *lease; /* the maker's, if it asked to attach or the version has no name */
};

extern const struct message_form form_publish_abort;
struct publish_abort_params {
	const struct version_id *publish;
	const char *reason;
};

#endif
