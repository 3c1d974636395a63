/* Messages: leases and claims. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_LEASE_H
#define GPUWM_PROTO_MESSAGES_LEASE_H

#include "message_form.h"
#include "record.h"
#include "reference.h"
#include "transport.h"

extern const struct message_form form_get_handles;
struct get_handles_params {
	struct reference ref;
	const char *device;
	uint64_t rank;
	int64_t wait_ms;
	bool look;
	struct owner_wish owner;
	const char *transport; /* NULL: TRANSPORT_FD */
	uint64_t room; /* bytes that the process takes on the device besides the version */
};
/* The map also has the part (part.h). With TRANSPORT_CUDA_IPC that has no segments, but the copy has handles. */
struct get_handles_result {
	uint64_t lease;
	const struct version_id *version;
	const char *model, *tag, *device;
	uint64_t rank, world, generation;
	const char *transport; /* NULL: TRANSPORT_FD */
	struct {
		const struct ipc_segment *items;
		uint32_t count;
	} handles;
	const char *event;
	const uint64_t *holder; /* the pid of the process that has the copy */
	uint64_t room; /* bytes that the lease has besides; an older gpuwmd says none */
};

extern const struct message_form form_release;
struct release_params {
	uint64_t lease;
	uint64_t room_to; /* the lease that gets the room; 0: nobody */
};

extern const struct message_form form_park;
struct park_params {
	uint64_t lease;
	uint64_t room; /* bytes that the process keeps on the device */
};

/* unpark answers with the result of get_handles. */
extern const struct message_form form_unpark;
struct unpark_params {
	uint64_t lease;
	int64_t wait_ms;
	const uint64_t *room; /* NULL: as much as when the lease was awake last */
	const char *group; /* the leases of this name are awake together; NULL: this one alone */
	uint64_t group_leases; /* how many they are */
};

extern const struct message_form form_announce;
struct announce_params {
	uint64_t lease;
	const char *address; /* NULL: none */
};

extern const struct message_form form_resume;
struct resume_lease {
	uint64_t lease;
	const struct version_id *version;
	const char *device;
	uint64_t rank;
	const char *address; /* NULL: none */
	const char *transport; /* NULL: TRANSPORT_FD */
	bool parked; /* its holder maps nothing */
	uint64_t room; /* bytes that its holder has on the device besides */
};
struct resume_params {
	struct {
		const struct resume_lease *items;
		const struct error *const *errors;
		uint32_t count;
	} leases;
	struct {
		const char *const *items;
		const struct error *const *errors;
		uint32_t count;
	} claims;
};
struct resumed_lease {
	const uint64_t *lease;
	const struct error *error;
	bool revoked;
};
struct resumed_claim {
	const struct error *error;
};
extern const struct record resumed_lease_record, resumed_claim_record;
struct resume_result {
	struct {
		const struct resumed_lease *items;
		uint32_t count;
	} leases;
	struct {
		const struct resumed_claim *items;
		uint32_t count;
	} claims;
	uint64_t grace_ms;
};

/* claim answers with its own result, or with that of get_handles. */
extern const struct message_form form_claim;
struct claim_params {
	struct reference name;
	const char *device;
	uint64_t rank;
	int64_t wait_ms;
	struct owner_wish owner;
};
struct claim_result {
	bool claimed;
};

extern const struct message_form form_claim_give_up;
struct claim_give_up_params {
	struct reference name;
};

extern const struct message_form form_revoked;
struct revoked_params {
	const char *reason;
	struct {
		const uint64_t *items;
		uint32_t count;
	} leases;
};

#endif
