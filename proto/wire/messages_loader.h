/* Messages: gpuwmd and its loaders. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_LOADER_H
#define GPUWM_PROTO_MESSAGES_LOADER_H

#include "reference.h"
#include "messages_jobs.h"
#include "messages_look.h"
#include "message_form.h"
#include "record.h"
#include "transport.h"

/* The name of the forms of all kinds of jobs. Every job has the keys of a head, and those of its kind. */
#define NOTIFY_JOB "job"
extern const struct record job_head_record;
struct job_head {
	uint64_t job;
	const char *kind; /* "load", "check", "verify", "region", "move" or "hold" */
};

/* Of the section [peers] of the configuration: what a loader needs. */
struct job_peers {
	const char *certificate, *key, *authority; /* paths */
	struct {
		const char *const *items;
		uint32_t count;
	} secrets, names, peers, dns; /* secrets: paths */
	const char *listen; /* ADDRESS:PORT; NULL: this node serves nothing */
	bool clear; /* encrypt = no */
};

extern const struct message_form form_job_load;
struct job_load_params {
	struct load_wish wish;
	const char *model, *tag;
	struct {
		const char *const *items;
		uint32_t count;
	} roots;
	bool keep;
	const struct job_peers *peers; /* NULL: it is not from a peer */
	const uint64_t *files; /* the position of the socket that the files come from; NULL: they have paths */
};

/* The part of a version that a job is about. */
struct job_place {
	uint64_t rank, world;
	const char *device; /* where the part belongs */
};

extern const struct message_form form_job_check;
struct job_check_params {
	const struct version_id *publish;
	struct job_place place;
	uint64_t bytes;
	uint64_t publisher; /* the position of the publisher's socket */
	bool keep;
};

/* Beside these the message has a part: the index, and the segments unless it has a source. */
extern const struct message_form form_job_verify;
struct job_verify_params {
	const char *model, *tag;
	struct job_place place;
	const uint64_t *chunk, *permille; /* the pace */
	const char
		*source; /* these files are compared with the index, and not the memory; NULL: the memory is */
	struct {
		const char *const *items;
		uint32_t count;
	} roots;
	struct load_choice choice;
	bool by_publisher; /* as in a move */
};

/* The version that other nodes are to have, and how to ask them. */
struct job_again {
	const struct job_peers *peers; /* NULL: there are no settings for them any more */
	const char *source; /* the node that it was taken from, in the form that a load takes */
	const char *fingerprint;
	const struct version_id *version; /* this node's, which has nothing to give */
	const struct digest *content; /* of rank 0 */
	uint64_t bytes; /* of all ranks */
};

/* Beside these the message has a part: the index, and the segments if both `from` and `to` are tiers with memory. */
extern const struct message_form form_job_move;
struct job_move_params {
	const char *model, *tag;
	struct job_place place;
	const char *from, *to; /* tiers: tier_kind.h */
	bool keep;
	const char *source; /* files, if one of them has no memory; NULL: memory has it, or other nodes */
	struct {
		const char *const *items;
		uint32_t count;
	} roots;
	struct load_choice choice;
	/* Other nodes have the version. `source` is then the files of another version of this node that has the same content: the loader
	 * reads those first. */
	const struct job_again *again;
	/* A publisher has described the version by these files. No link below a root is followed to them, and an error tells nothing of
	 * what is in them: others may have put files there since which that user may not read. */
	bool by_publisher;
	/* Positions of segments that another version has on the new tier, which the part shares: the message has those in place of the
	 * part's own, and of files just those, in this order. */
	struct {
		const uint64_t *items;
		uint32_t count;
	} shared;
	const uint64_t *
		files; /* the position of the socket through which that user passes the files; NULL: there is none */
};

/* Beside these the message has a part, of which the loader makes a copy. */
extern const struct message_form form_job_hold;
struct job_hold_params {
	const char *model, *tag;
	struct job_place place;
};

extern const struct message_form form_job_cancel; /* nothing: ends the job */

/* From a publisher to its checker. The map is a part. */
extern const struct message_form form_hand_in;

/* From the process that began a load, to its loader. Each name is that of the descriptor at its
 * position. */
extern const struct message_form form_hand_files;
struct hand_files_params {
	struct {
		const char *const *items;
		uint32_t count;
	} names;
};

extern const struct message_form form_warm;
struct warm_params {
	struct {
		const char *const *items;
		uint32_t count;
	} devices;
};

/* What a loader knows of a device. */
struct device_found {
	const char *device, *kind, *name;
	uint64_t total;
	const uint64_t *free;
	uint64_t granularity, context;
};
/* A device that gpuwmd knows. */
struct device_known {
	const char *device;
	bool lost;
};

extern const struct message_form form_loader_hello;
struct loader_hello_params {
	uint64_t protocol_min, protocol_max;
	const uint64_t *pid, *pidfd;
	struct {
		const struct device_found *items;
		uint32_t count;
	} devices;
};
struct loader_hello_result {
	uint64_t protocol;
	const struct version_id *instance;
	struct {
		const struct device_known *items;
		uint32_t count;
	} devices;
	struct {
		const char *const *items;
		uint32_t count;
	} roots; /* for the loader to judge; none: it judges nothing */
};

extern const struct message_form form_report;
struct report_params {
	struct {
		const struct device_known *items;
		uint32_t count;
	} devices;
	struct {
		const char *const *items;
		uint32_t count;
	} roots; /* for the loader to judge; none: it judges nothing */
};

extern const struct message_form form_loader_roots;
struct loader_roots_params {
	struct {
		const struct root_told *items;
		uint32_t count;
	} roots;
};

extern const struct message_form form_loader_devices;
struct device_found_lost {
	const char *device;
	const struct error *error;
};
struct loader_devices_params {
	struct {
		const struct device_found *items;
		uint32_t count;
	} devices;
	struct {
		const struct device_found_lost *items;
		uint32_t count;
	} lost;
	struct {
		const char *const *items;
		uint32_t count;
	} back;
};

extern const struct message_form form_loader_warm;
struct loader_warm_params {
	const struct error *error;
};

extern const struct message_form form_loader_progress;
struct loader_progress_params {
	const char *phase;
	uint64_t done, total;
	const char *note;
};

extern const struct message_form form_loader_done;
struct plan_device {
	const char *device;
	uint64_t bytes, segments;
};
struct plan_params {
	uint64_t tensors, files, bytes, cached;
	struct {
		const struct plan_device *items;
		uint32_t count;
	} devices;
	struct {
		const uint64_t *items;
		uint32_t count;
	} parts; /* the bytes of each part, in the order of their publishes, if the one device gets several */
};
extern const struct record plan_params_record;
struct loader_done_params {
	const struct error *error;
	const uint64_t *segment; /* the number of the segment that is damaged */
	bool keeps;
	const struct plan_params *plan;
};
struct loader_done_result {
	bool stay;
};

/* A segment of a load that is a segment of the version that the load shares. */
struct segment_shared {
	uint64_t segment, resident; /* their numbers in the two parts */
};

/* Beside these the message has the part. */
extern const struct message_form form_loader_checked;
struct loader_checked_params {
	const struct version_id *publish;
	uint64_t rank;
	const char *device;
	const struct digest *content, *layout;
	uint64_t tensors;
	struct {
		const struct segment_shared *items;
		uint32_t count;
	} shared;
};

/* Beside these the message has the segments of a part (part_segments_write). */
extern const struct message_form form_loader_moved;
struct loader_moved_params {
	uint64_t rank;
	const char *device;
};

/* The copy is complete: a handle of each segment, and of an event that is recorded after the fill. */
extern const struct message_form form_loader_holds;
struct loader_holds_params {
	struct {
		const struct ipc_segment *items;
		uint32_t count;
	} handles;
	const char *event;
};

/* The result is a part. */
extern const struct message_form form_loader_resident;
struct loader_resident_params {
	uint64_t rank;
	const char *device;
};

#endif
