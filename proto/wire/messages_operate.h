/* Messages: what operators ask for. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_OPERATE_H
#define GPUWM_PROTO_MESSAGES_OPERATE_H

#include "message_form.h"
#include "record.h"
#include "reference.h"

extern const struct message_form form_pin_version, form_unpin_version;
struct pin_params {
	struct reference ref;
	const char *pin;
};
/* pin_version, unpin_version, remove */
struct version_result {
	const struct version_id *version;
};

extern const struct message_form form_hot_swap;
struct hot_swap_params {
	const char *model, *alias, *to;
	const struct version_id *expect;
	bool retire_old;
};
struct hot_swap_result {
	const struct version_id *version, *old;
	uint64_t generation;
	const char *old_state;
	const struct error *retire_error;
};

extern const struct message_form form_retire;
struct retire_params {
	struct reference ref;
	int64_t wait_ms;
	bool force;
	uint64_t after_ms;
};
struct retire_result {
	const struct version_id *version;
	const char *state;
	uint64_t leases, pins;
};

extern const struct message_form form_remove;
struct remove_params {
	struct reference ref;
};

extern const struct message_form form_kick;
struct kick_params {
	const uint64_t *lease, *pid, *uid;
};
struct kicked {
	uint64_t lease, session, pid, uid;
	const char *command;
	const struct version_id *version;
	const char *model, *tag, *device;
	uint64_t rank;
};
extern const struct record kicked_record;
struct kick_result {
	struct {
		const struct kicked *items;
		uint32_t count;
	} leases;
};

extern const struct message_form form_drain;
struct drain_params {
	const char *device;
	bool keep_descriptions;
};
struct still_held {
	const struct version_id *version;
	const char *model, *tag;
	uint64_t leases, pins;
};
extern const struct record still_held_record;
struct drain_result {
	struct {
		const struct still_held *items;
		uint32_t count;
	} left;
	const uint64_t *kept_descriptions; /* NULL: none was to be kept */
};

extern const struct message_form form_reload;
struct reload_result {
	const char *file;
};

#endif
