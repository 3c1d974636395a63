/* One job that gpuwmd gives, and its progress. Only the main thread uses it. */
#ifndef GPUWM_LOADER_JOB_H
#define GPUWM_LOADER_JOB_H

#include "files/roots.h"

#include "../client/lib/connection/connection.h"
#include "../memory/memory.h"
#include "../service/peers.h"
#include "../proto/tier_kind.h"
#include "../proto/wire/part.h"

struct key_field;

enum job_kind { JOB_LOAD, JOB_CHECK, JOB_VERIFY, JOB_REGION, JOB_MOVE, JOB_HOLD };

struct job {
	enum job_kind kind;

	/* of a load; a move has some of it too */
	char source[PATH_BYTES_MAX + 1];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1], alias[NAME_BYTES_MAX + 1];
	char devices[PARTS_PER_VERSION_MAX][DEVICE_BYTES_MAX + 1];
	size_t device_count;
	bool dry_run; /* only make a plan */
	bool keep; /* the contexts stay for the next job, if all goes well; also of a check and a move */
	uint64_t segment_bytes; /* 0: what the library takes */
	char *cut; /* the text of a cut plan, owned by the job; NULL: the source is not cut */
	uint32_t ranks; /* into which it is cut */
	char expect[FINGERPRINT_TEXT + 1]; /* the fingerprint of a peer's version; "": any */
	struct peer_settings peers; /* owned by the job; of a source that is a peer's */
	char share_with[2 * NAME_BYTES_MAX + 2]; /* model@tag of a resident version; "": nothing is shared */
	struct key_field *key; /* owned by the job; NULL: none */
	uint32_t key_count;
	struct roots roots; /* owned by the job */

	/* of a check, a verify, a move and a hold */
	uint32_t rank, world;
	char device[DEVICE_BYTES_MAX + 1]; /* also of a region */

	/* of a verify, a move and a hold; these jobs use model and tag too */
	struct part *part; /* owned by the job */

	/* of a move; `devices` has the GPU that it needs, if it needs one */
	enum tier from, to;

	/* of a verify */
	bool paced;
	struct memory_pace pace;

	/* of a check */
	struct version_id publish;
	uint64_t bytes; /* also of a region */
	int publisher; /* also of a load whose files come as descriptors; owned by the job; -1: none */

	struct version_id region; /* of a region */
};

/* Parses the parameters of `job`, and takes the publisher's socket or the part out of the packet.
 * Returns 0 and sets *ret. Fails with -EINVAL, with -EBADMSG if a check comes without its socket,
 * and with -EPROTO if a verify or a move comes without its descriptors: that does not mean that the
 * memory differs. */
int job_parse(const struct message *message, struct packet *packet, struct job *ret, struct error *error);
/* Parses `devices` of `warm` into a job that has nothing else but `keep`. Returns 0. Fails with
 * -EINVAL. */
int job_parse_warm(const struct message *message, struct job *ret, struct error *error);
void job_clear(struct job *job);

/* The connection of a running job, and how far the job is. */
struct work {
	struct connection *connection;
	struct gpuwm_client *client; /* made around the connection, for publishing */
	bool cancelled; /* set by the function that handles notifications */
	const char *phase;
	uint64_t done, total;
	uint64_t sent_ms; /* when progress was last sent */
	int damaged; /* of a verify that fails: the segment that differs; -1: none */
};

/* Begins a phase ("opening", "planning", "allocating", "starting the GPU", "copying", "checking",
 * "sealing", "comparing", "handing in", "mapping", "verifying", "reading"; of a source that is a peer's "asking the
 * peer", "taking") and tells gpuwmd. total: the bytes of the phase, or 0 if
 * nothing is counted. Returns 0. Fails with -ECANCELED, and with -ECONNRESET. */
int work_phase(struct work *work, const char *phase, uint64_t total);
/* Counts `bytes` more as done. It tells gpuwmd at most every WORK_TELL_MS, and looks at the
 * connection each time. It is a memory_progress_fn. Returns 0. Fails with -ECANCELED, and with
 * -ECONNRESET. */
int work_advance(uint64_t bytes, void *work);
/* Tells the operator one sentence about this job besides its progress, such as which path was taken
 * and why, or how fast a kernel was. The sentence is cut at TEXT_BYTES_MAX. gpuwmd keeps the first
 * 16 of a job. If the connection is gone, the next work_phase or work_advance notices it. */
void work_note(struct work *work, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fills *error for a code that work_phase or work_advance returned. */
int work_stopped(const struct work *work, int code, struct error *error);

#define WORK_TELL_MS 100 /* it moves a progress bar, and 10 messages a second cost nothing */

/* ---- parts that come in packets (files/hand_in.c) ----
 *
 * A part as it comes in a packet, and the checker's side of the socket that a publisher got. */

/* Waits for the publisher's one `hand_in`, and answers it. Returns 0 and sets *ret, whose
 * descriptors the caller closes. Fails with -ECANCELED if the publisher's socket ends or gpuwmd cancels, with
 * -ECONNRESET if gpuwmd goes, and with -EPROTO, -EINVAL or -EBADMSG if the packet is not a hand_in.
 * In the last case the publisher gets the same error. */
int hand_in_receive(int publisher, struct work *work, struct part *ret, struct error *error);
/* As part_read. Fails with -EBADMSG also if other descriptors came with the packet. */
int hand_in_take(struct fields *f, struct packet *packet, struct part *ret);

#endif
