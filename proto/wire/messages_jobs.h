/* Messages: loads, verifies, moves between tiers, and the jobs that do them. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_JOBS_H
#define GPUWM_PROTO_MESSAGES_JOBS_H

#include "message_form.h"
#include "record.h"
#include "reference.h"

/* Which bytes of its source a version gets, and where they go. Whatever makes the version again from its files needs the same:
 * gpuwmd keeps it with the version (struct description), and a move has it. */
struct load_choice {
	const uint64_t *ranks;
	const char *cut; /* the text of a plan */
	struct {
		const char *const *items;
		uint32_t count;
	} only; /* globs: the tensors that match one of them; none: all tensors */
};
extern const struct record load_choice_record;

/* What a load is to do: the keys that `load` and the loader's job both have. An option that only the loader needs is a
 * row of this record, and nothing between the two is told of it. */
extern const struct record load_wish_record;
struct load_wish {
	const char *source;
	struct {
		const char *const *items;
		uint32_t count;
	} devices;
	const char *alias;
	bool dry_run;
	struct {
		const struct key_pair *items;
		uint32_t count;
	} key;
	const char *share_with; /* a reference */
	const uint64_t *segment_bytes;
	struct load_choice choice;
	const char *fingerprint; /* of a version from a peer: 64 hex digits */
	const struct version_id *companion_of; /* NULL: of none */
};

extern const struct message_form form_load;
struct load_params {
	struct load_wish wish;
	struct reference name;
	const struct version_id *expect;
	bool retire_old;
	bool files; /* the source is files that the caller passes; `source` only names them */
};
struct load_result {
	uint64_t job;
	const uint64_t *files; /* the position of the socket that takes the files, if they are passed */
};

extern const struct message_form form_verify;
struct verify_params {
	struct reference ref;
	const char *device;
	const uint64_t *rank;
	bool source; /* reads the files that the version comes back from, and not its memory */
};
struct verify_result {
	struct {
		const uint64_t *items;
		uint32_t count;
	} jobs;
};

extern const struct message_form form_demote;
struct demote_params {
	struct reference ref;
	const char *to; /* a tier but the first */
};

extern const struct message_form form_promote;
struct promote_params {
	struct reference ref;
};

extern const struct message_form form_describe;
struct describe_params {
	struct reference ref;
	const char *source;
	bool files; /* the caller passes the files of the folder `source`, to show that it may read them */
};

/* demote, promote, describe */
struct moves_result {
	struct {
		const uint64_t *items;
		uint32_t count;
	} jobs; /* one for each part that moves; none if nothing has to move */
	struct {
		const uint64_t *items;
		uint32_t count;
	} files; /* of `describe` with files: the positions of the sockets that take them, one for each job */
};

extern const struct message_form form_jobs;
struct jobs_params {
	const uint64_t *job;
	int64_t wait_ms;
};

struct plan_device_told {
	const char *device;
	uint64_t bytes, segments, context;
	const uint64_t *free;
	uint64_t budget_left;
	bool fits;
	const struct error *refusal;
	bool short_of_free;
};
/* A version that would be demoted for the load. */
struct plan_demotion_told {
	const char *device, *model, *tag, *to;
	uint64_t bytes; /* that come free on the device */
};
/* The map also has the arrays `devices` and, if versions would be demoted, `demotes`. */
struct plan_told {
	uint64_t tensors, files, bytes, cached;
};
struct job_phase_told {
	const char *phase;
	uint64_t ms, bytes;
};
/* The map also has the array `phases` and, after a dry run, the map `plan`. */
struct job_told {
	uint64_t job;
	const char *kind, *state, *phase, *model, *tag, *source;
	struct {
		const char *const *items;
		uint32_t count;
	} devices, notes;
	const struct version_id *version;
	const uint64_t *rank;
	uint64_t uid, done, total;
	bool dry_run;
	uint64_t created_ms;
	const uint64_t *started_ms, *ended_ms;
	const struct error *error;
};
extern const struct record plan_device_told_record, plan_demotion_told_record, plan_told_record,
	job_phase_told_record, job_told_record;

extern const struct message_form form_cancel;
struct cancel_params {
	uint64_t job;
};

#endif
