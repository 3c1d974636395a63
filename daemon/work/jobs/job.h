/* Jobs: what loaders do in the background, and the results. */
#ifndef GPUWM_DAEMON_JOB_H
#define GPUWM_DAEMON_JOB_H

#include "../../../base/errors.h"
#include "../../base/share.h"
#include "../../../proto/names.h"
#include "../../../proto/wire/packet.h"
#include "../../../proto/wire/messages.h"
#include "../../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct budget_charge;
struct config;
struct device;
struct hand_in;
struct job;
struct loader;
struct message_writer;
struct metrics;
struct version;
struct work;

/* ---- the course of a job, for operators: job_record.c ----
 * Its phases with their times, and notes. */

/* A load has about eight. A phase that begins again continues its first entry. */
#define JOB_PHASES_MAX 16
#define JOB_PHASE_NAME_BYTES 31 /* longer ones are cut */

struct job_phase {
	char name[JOB_PHASE_NAME_BYTES + 1];
	uint64_t ms;
	uint64_t bytes; /* how many were done in it; 0: the phase counts no bytes */
};

struct job_record {
	struct job_phase phases[JOB_PHASES_MAX]; /* by their beginnings */
	size_t phase_count, current;
	uint64_t since_ms; /* steady: when the current phase began last; 0: no phase runs */
	uint64_t done, total; /* bytes of the current phase since then */
	char *notes[JOB_NOTES_MAX]; /* owned */
	size_t note_count;
};

/* Begins or continues a phase. The phase before it is complete. If there are JOB_PHASES_MAX phases, the last one goes on. */
void job_record_phase(struct job_record *record, const char *phase, uint64_t now_ms);
/* Sets the bytes of the current phase. */
void job_record_bytes(struct job_record *record, uint64_t done, uint64_t total);
/* Ends the current phase. complete: all of its bytes are done, even if the loader reported fewer last. */
void job_record_end(struct job_record *record, bool complete, uint64_t now_ms);
/* Adds a note. Returns false if the job has this note already, if it has JOB_NOTES_MAX notes, or if there is no memory. */
bool job_record_note(struct job_record *record, const char *note);
void job_record_clear(struct job_record *record);

/* Writes `phases` for the method `jobs`. */
void job_record_put_phases(struct message_writer *w, const struct job_record *record, uint64_t now_ms);

/* ---- a job ---- */

enum job_kind { JOB_LOAD, JOB_CHECK, JOB_VERIFY, JOB_REGION, JOB_MOVE, JOB_HOLD, JOB_KINDS };

/* What is particular to a kind of job. */
struct job_actions {
	size_t size; /* of the kind's own struct, which begins with its struct job */
	bool is_of_part; /* it is about the part `replica` of a version that is there */
	/* Writes what the loader must know of the job besides its number and kind. Fills in the descriptors that go with the
	 * message, and returns their number. */
	size_t (*put)(struct message_writer *w, const struct job *job, const struct config *config,
		      int ret_fds[PACKET_FDS_MAX]);
	/* A loader gets the job, and its message is written. Returns true if the descriptors belong to the message from then
	 * on. NULL: nothing is to be done. */
	bool (*begin)(struct job *job);
	/* The job has ended (error NULL: it is done). Fails what the job was to bring about, as far as it did not. */
	void (*end)(struct work *work, struct job *job, const struct error *error);
	/* Closes what the job has open. It is called before `end`, and again before the job is freed. NULL: jobs of this kind
	 * have nothing open. */
	void (*clear)(struct job *job);
	/* Frees what the kind's struct owns. NULL: nothing. */
	void (*free)(struct job *job);
	/* Returns whether the job has done its part, and gpuwmd stores it. Then the job does not end with its loader. NULL: the
	 * state of the job's version tells. */
	bool (*is_storing)(const struct job *job);
};

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };
const char *job_kind_name(enum job_kind kind);
const char *job_state_name(enum job_state state);
/* Returns the name of the state for `jobs` and events: "cancelling" from the cancellation of a running job to its end. */
const char *job_state_told(const struct job *job);

struct job {
	uint64_t id;
	enum job_kind kind;
	const struct job_actions *actions;
	enum job_state state;
	char phase[PHASE_BYTES_MAX + 1];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1];
	const char *source; /* the files of a load or a move, whose own it is; NULL: none */
	bool dry_run; /* its loader only makes a plan */
	struct device **devices;
	size_t device_count;
	struct budget_charge
		*contexts; /* one for each device, until they move to the loader; NULL: none is charged */
	bool crowded; /* it waits until contexts of other loaders have gone */
	struct version_id version; /* zero: none yet */
	uid_t uid;
	bool asked_by_operator; /* or by gpuwmd itself */
	uint64_t done, total;
	struct job_record record;
	uint64_t created_ms, started_ms, ended_ms; /* since 1970; 0: not yet */
	uint64_t ended_steady_ms; /* the same end by the steady clock, for JOB_KEPT_SECONDS */
	struct error *
		error; /* why it failed; of a job that is done: what could not be done after it; NULL: nothing */
	unsigned given_back; /* how many loaders died before they began it, or might not read its source */
	struct loader
		*loader; /* that runs it; NULL: none yet, or the loader left while gpuwmd stores the version */
	bool made; /* load, move: its version is ready, or its part has moved, so the job is done however its loader ends */
	uint64_t told_ms; /* steady: its last progress event */
	bool cancelled; /* it was cancelled, and has not ended yet or ended so */
	bool is_routine; /* one of hundreds, which is listed only if it fails */

	/* Which loader gets it, and when. */
	bool takes_turns; /* load, move: neither operators nor their rules asked for it, so users take turns with it */
	bool by_operator; /* check: its publisher began as an operator; move: an operator made the version */
	bool holds_socket; /* what it is about comes through a socket, which gpuwmd has until a loader has begun the job */
	int publisher_sock; /* the loader's end of it; -1: handed on, or none */
	struct hand_in
		*hand_in; /* of a check that waits until the publisher hands in; NULL: a loader may begin */
	uint64_t watched_ms; /* steady: its last sign of life since it had work; 0: none yet */

	/* Of a job about one part of a version. */
	uint32_t rank, world;
	uint32_t replica; /* position in the version's replicas; not of a check */
	struct version
		*reads; /* verify, hold: the version, which is not freed before the job's end; NULL: none */
	bool found_segment; /* the loader named the segment that is damaged: */
	uint32_t damaged_segment;

	struct job *next;
};

/* Job numbers go up across restarts, so that a number never means two jobs. Each gpuwmd begins at a round number, because people
 * type them. */
#define JOBS_PER_EPOCH 1000000

struct job_table {
	const struct job_actions *const *actions; /* by kind */
	struct job *first, **end; /* by age */
	uint64_t last_id, running, queued, kept; /* queued: leaves out checks that wait for their publisher */
};

/* actions: of each kind; they must outlive the table. */
void job_table_init(struct job_table *table, const struct job_actions *const actions[JOB_KINDS]);
void job_table_clear(struct job_table *table);

/* What a job is for. */
struct job_wish {
	enum job_kind kind;
	const char *model, *tag;
	uid_t uid;
	bool asked_by_operator; /* or by gpuwmd itself */
};

/* Makes a queued job; the caller fills in what its kind needs. Sets *ret_job, which belongs to the table. Fails with -EDQUOT
 * (base/share.h, of JOBS_QUEUED_MAX waiting jobs; for a check of CHECKS_OPEN_MAX sockets, CHECKS_OPEN_PER_UID_MAX at most) and
 * -ENOMEM. */
int job_new(struct work *work, const struct job_wish *wish, struct job **ret_job, struct error *error);
/* The check waits for its publisher from now on (hand_in_await), and needs no loader until then. */
void job_awaits_publisher(struct job_table *table, struct job *job);
/* The publisher of the check has handed in: the check waits for a loader now. */
void job_handed_in(struct job_table *table, struct job *job);
/* Removes a queued job of which no session knows yet. */
void job_drop(struct job_table *table, struct job *job);
/* Checks that there may be one more job that holds a socket, of this user or of operators. Fails with -EDQUOT, as job_new. */
int job_check_sockets(const struct job_table *table, uid_t uid, bool by_operator, struct error *error);
/* The same for any table of jobs: `held` is what is held of it, and `all` how many jobs of all are in it. */
int job_check_share(const struct share_table *table, const struct share_held *held, uid_t uid, bool by_operator,
		    struct error *error);
/* The load's files come through a socket, which the caller makes. Fails with -EDQUOT as for a check. */
int job_take_files(struct job_table *table, struct job *job, struct error *error);
/* For job_actions.begin of jobs with a publisher_sock: the message takes the socket along. What came through the socket stays in it
 * until the loader begins, so another loader may still need it: gpuwmd keeps a copy. If there is no copy (-1), the job is lost with
 * its loader. */
bool job_hand_on(struct job *job);
/* For job_actions.clear of such jobs. */
void job_close_socket(struct job *job);
/* Adds a device to the job. Fails with -ENOMEM. */
int job_add_device(struct job *job, struct device *device);
/* Returns the job with this number. NULL: there was none, or it was forgotten. */
struct job *job_find(const struct job_table *table, uint64_t id);
/* Returns the oldest job that waits for a loader, after this one (NULL: of all), or NULL. Checks that wait for their publisher
 * are left out; if `checks` is false, all jobs but those of operators (job_is_operators). */
struct job *job_queued(const struct job_table *table, const struct job *after, bool checks);
/* Returns whether the job is a load or a move that operators or their rules asked for. */
bool job_is_operators(const struct job *job);
/* Returns the oldest check that waits for its publisher, or NULL. */
struct job *job_awaiting(const struct job_table *table);
/* Returns whether the two jobs are of one kind and one user. */
bool job_is_like(const struct job *job, const struct job *other);
/* Returns how many jobs like this one wait for a loader and are older. */
uint64_t job_queued_like(const struct job_table *table, const struct job *before);
bool job_ended(const struct job *job);
/* Returns whether the job waits until contexts of other loaders have gone, on this device among others. */
bool job_is_crowded_on(const struct job *job, const struct device *device);
/* Forgets ended jobs beyond JOBS_KEPT_MAX and JOB_KEPT_SECONDS. If there are too many, those that failed go last: a
 * failure is not pushed out by a thousand publishes. */
void job_table_prune(struct job_table *table);

/* Gives back the contexts that no loader has. */
void job_release_contexts(struct job *job);

/* Writes the message for the loader. Fills in the descriptors that go with it, and returns their number. */
size_t job_put(struct message_writer *w, const struct job *job, const struct config *config,
	       int ret_fds[PACKET_FDS_MAX]);
/* Says in the phase of a queued job why it has no loader yet; why "": a loader is coming. */
void job_waits(struct work *work, struct job *job, const char *why);
/* A loader has got the job. */
void job_start(struct work *work, struct job *job, struct loader *loader);
/* The loader has begun the job: no other one can get it any more. */
void job_has_begun(struct job *job);
/* Whether the job has made its version, whose end says more than the job's. */
bool job_has_version(const struct job *job);
/* The loader has gone before it began the job, or may not read what a fresh one may: the job waits for another loader. */
void job_again(struct work *work, struct job *job);
/* The loader has reported its progress. */
void job_progress(struct work *work, struct job *job, const char *phase, uint64_t done, uint64_t total);
/* The loader has reported a note for operators. */
void job_remark(struct work *work, struct job *job, const char *note);
/* The job can make progress, or has made some: the time in which it must make more begins now. */
void job_watch(struct job *job);
/* Returns whether gpuwmd is storing what the job has made. */
bool job_is_storing(const struct work *work, const struct job *job);
/* Ends a job: done if error is NULL, else cancelled (-ECANCELED, or after job_cancel) or failed. What it had not finished fails
 * with it. A load ends as its version does: it is done when the version is ready, and goes on while gpuwmd stores the
 * version. Does nothing if the job has ended. */
void job_end(struct work *work, struct job *job, const struct error *error);
/* A load that has ended counts in the metrics. */
void job_into_metrics(struct metrics *metrics, const struct job *job);
/* Returns whether a load makes this version, or has made it a short time ago. */
bool jobs_load(const struct job_table *table, const struct version *version);
/* A version is ready (error NULL) or has failed: ends the load that makes it in the same way. */
void jobs_conclude(struct work *work, const struct version_id *version, const struct error *error);
/* Keeps a copy of the error with the job, if there is memory for it. The job does not end. */
void job_set_error(struct job *job, const struct error *error);
/* Notes in the jobs that made or checked this version what could not be done after it became ready. The jobs do not fail. */
void job_note(struct job_table *table, const struct version_id *version, const struct error *error);
/* Cancels a job. A queued job ends at once. The loader of a running job gets a message before the loop sleeps, and is killed if
 * it does not end the job in time. */
void job_cancel(struct work *work, struct job *job, const struct error *reason);
/* Cancels the jobs that read the memory of this version, which is to be freed. */
void jobs_cancel_readers(struct work *work, const struct version *version);

/* ---- the contexts of a job: job_context.c ----
 * The room that the CUDA contexts of a job's loader take. */

/* Charges the job's devices with the contexts that the loader (NULL: a new one) does not have yet. Fails with -EAGAIN if the
 * contexts fit once contexts of other loaders have gone, and with -ENOSPC and -ENOMEM. */
int job_charge_contexts(struct job *job, const struct loader *loader, struct error *error);
/* Moves the charges to the loader, which keeps them until its process is gone. */
void job_hand_contexts(struct job *job, struct loader *loader);

/* ---- what is particular to each kind of job: job_load.c, job_check.c, verify.c, copies.c, tiers/job_move.c, regions/regions_make.c ----
 * work/work.c has the list. */

extern const struct job_actions job_load, job_check, job_verify, job_region, job_move, job_hold;

#endif
