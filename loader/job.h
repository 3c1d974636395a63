/* One job as the daemon gives it, and its progress. The main thread only. */
#ifndef GPUWM_LOADER_JOB_H
#define GPUWM_LOADER_JOB_H

#include "roots.h"

#include "../client/lib/connection.h"
#include "../client/lib/memory.h"

struct hand_in;
struct key_field;

enum job_kind { JOB_LOAD, JOB_CHECK, JOB_VERIFY };

struct job {
	uint64_t number;
	enum job_kind kind;

	/* load */
	char source[PATH_BYTES_MAX + 1];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1], alias[NAME_BYTES_MAX + 1];
	char devices[PARTS_PER_VERSION_MAX][DEVICE_BYTES_MAX + 1];
	size_t device_count;
	bool dry_run; /* only a plan */
	bool keep; /* the contexts stay for the next load, if all goes well */
	struct key_field *key; /* owned; NULL: none */
	uint32_t key_count;
	struct roots roots; /* owned */

	/* check and verify */
	uint32_t rank, world;
	char device[DEVICE_BYTES_MAX + 1];

	/* verify; model and tag too */
	struct hand_in *part; /* owned */
	bool paced;
	struct memory_pace pace;

	/* check */
	char publish[VERSION_ID_TEXT];
	uint64_t bytes;
	int publisher; /* owned; -1: none */
};

/* Parses the parameters of `job`; takes the publisher's socket, or the part, out of the
 * packet. -EINVAL, -EBADMSG (no socket); -EPROTO (a verify without its descriptors: nothing differs). */
int job_parse(const struct message *message, struct packet *packet, struct job *ret, struct error *error);
/* Parses `devices` of `warm` into a job that has nothing else but `keep`. -EINVAL. */
int job_parse_warm(const struct message *message, struct job *ret, struct error *error);
void job_clear(struct job *job);

/* What runs a job: the connection, and how far it is. */
struct work {
	struct connection *connection;
	struct gpuwm_client *client; /* around the connection, for publishing */
	bool cancelled; /* set by whoever handles notifications */
	const char *phase;
	uint64_t done, total;
	int64_t told_ms; /* when progress was last told */
};

/* Begins a phase ("opening", "planning", "allocating", "starting the GPU", "copying", "checking",
 * "handing in", "mapping", "verifying") and tells it. total: bytes, 0 where nothing is counted. 0, -ECANCELED, -ECONNRESET. */
int work_phase(struct work *work, const char *phase, uint64_t total);
/* `bytes` more are done. Told at most every WORK_TELL_MS; looks at the
 * connection each time. A memory_progress_fn. 0, -ECANCELED, -ECONNRESET. */
int work_advance(uint64_t bytes, void *work);
/* Tells the operator one sentence about this job beside its progress: which path was taken and why, how fast
 * a kernel was. Cut at TEXT_BYTES_MAX; gpuwmd keeps the first 16 of a job. A connection that is gone is
 * noticed by the next of those. */
void work_note(struct work *work, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* *error for a code of work_phase or work_advance. */
int work_stopped(const struct work *work, int code, struct error *error);

#define WORK_TELL_MS 100 /* a progress bar moves; 10 messages a second are nothing */

#endif
