/* Messages: the session. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_SESSION_H
#define GPUWM_PROTO_MESSAGES_SESSION_H

#include "message_form.h"

extern const struct message_form form_hello;
struct hello_params {
	uint64_t protocol_min, protocol_max;
	const char *client;
};
struct device_told {
	const char *device, *kind, *name;
	uint64_t total;
	const uint64_t *free, *free_age_ms;
	uint64_t budget, used, granularity, context, contexts, still_mapped, rooms;
	const struct error *lost;
};
extern const struct record device_told_record;
/* The map also has what each user may have: a number for each quota that is limited, by its key in the configuration. */
struct limits_told {
	uint64_t packet_bytes, packet_fds, part_segments, parts_per_version, versions, store_fds,
		requests_per_session;
	uint64_t sessions, connects_per_second, loaders;
};
extern const struct record limits_told_record;
/* The map also has `limits`, which the library does not read. */
struct hello_result {
	uint64_t protocol;
	const struct version_id *instance, *ledger;
	uint64_t epoch;
	const char *server;
	uint64_t pid;
	struct {
		const char *const *items;
		uint32_t count;
	} roles;
	struct {
		const struct device_told *items;
		uint32_t count;
	} devices;
};

extern const struct message_form form_ping;

extern const struct message_form form_subscribe;
struct subscribe_params {
	const uint64_t *after;
};
struct subscribe_result {
	uint64_t seq;
};

#endif
