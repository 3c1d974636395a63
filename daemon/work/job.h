/* Jobs: work that loaders do in the background, and what became of it. */
#ifndef GPUWM_DAEMON_JOB_H
#define GPUWM_DAEMON_JOB_H

#include "job_plan.h"
#include "job_record.h"
#include "../../proto/errors.h"
#include "../../proto/names.h"
#include "../../proto/packet.h"

#include <stdbool.h>
#include <sys/types.h>

struct work;
struct loader;
struct key_field;
struct device;
struct budget_charge;
struct config;
struct hand_in;
struct job;
struct message_writer;
struct version;

enum job_kind { JOB_LOAD, JOB_CHECK, JOB_VERIFY, JOB_KINDS };

/* What is particular to a kind of job. */
struct job_actions {
	/* Writes what the loader is told of it, besides its number and kind. */
	void (*put)(struct message_writer *w, const struct job *job, const struct config *config);
	/* A loader gets it. Fills in the descriptors that go with the message and returns their number. *ret_close: they are
	 * the message's from now on, and no longer the job's. NULL: none go with it. */
	size_t (*begin)(struct job *job, int ret_fds[PACKET_FDS_MAX], bool *ret_close);
	/* It has ended (error NULL: done). What it was to bring about and did not fails. */
	void (*end)(struct work *work, struct job *job, const struct error *error);
	/* Gives back what it has beside memory: before `end`, and once more before it is freed. NULL: it has nothing. */
	void (*clear)(struct job *job);
};

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };
const char *job_kind_name(enum job_kind kind);
const char *job_state_name(enum job_state state);
/* Returns the name of the state for `jobs` and events: "cancelling" from the cancellation of a running job to its end. */
const char *job_state_told(const struct job *job);

#define JOB_PHASE_BYTES 255 /* why a loader is waited for, with a path in it */

struct job {
	uint64_t id;
	enum job_kind kind;
	const struct job_actions *actions; /* of its kind */
	enum job_state state;
	char phase[JOB_PHASE_BYTES + 1];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1], alias[NAME_BYTES_MAX + 1];
	char *source; /* load */
	bool has_expect, retire_old; /* load: as in publish.h */
	struct version_id expect;
	struct key_field *key; /* the version's; owned; NULL: none */
	uint32_t key_count;
	bool dry_run; /* makes a plan and nothing else */
	struct job_plan *plan; /* owned; NULL: none yet */
	struct device **devices;
	size_t device_count;
	struct budget_charge *contexts; /* one a device, until the loader has them; NULL: not charged */
	bool crowded; /* waits for contexts of other loaders to go */
	struct version_id version; /* zero: none yet */
	uid_t uid;
	uint64_t done, total;
	struct job_record record;
	uint64_t created_ms, started_ms, ended_ms; /* since 1970; 0: not yet */
	uint64_t
		ended_steady_ms; /* the end of the job, for JOB_KEPT_SECONDS; setting the clock does not change it */
	struct error *error; /* why it failed; of one that is done: what did not follow; NULL: neither */
	struct loader *loader; /* that runs it; NULL: none yet, or it left while the version is stored */
	bool made; /* load: its version is ready, whatever becomes of the loader */
	uint64_t told_ms; /* steady: its last progress event */
	bool cancelled; /* it was asked to end */

	/* check */
	struct version_id publish;
	uint32_t rank, world;
	uint64_t bytes;
	int publisher_sock; /* the checker's end; -1: handed on */
	struct hand_in
		*hand_in; /* its publisher has not handed in: there is nothing to check yet; NULL: it has */
	uint64_t left_ms; /* steady: when the publisher closed its socket without a hand_in; 0: it did not */
	uint64_t watched_ms; /* steady: its last sign of life since it had work; 0: none yet */

	/* verify (verify.h), with rank and world */
	struct version *verifies; /* not freed before the job's end */
	uint32_t replica; /* position in its replicas */
	uint64_t chunk; /* its pace; 0: as fast as can be */
	uint32_t permille;
	bool scrub; /* told only where it fails, and forgotten else: there may be hundreds in a pass */

	struct job *next;
};

/* Numbers go up across restarts, so that one of an earlier gpuwmd is never another job's. Round, since
 * people type them. */
#define JOBS_PER_EPOCH 1000000

struct job_table {
	const struct job_actions *const *actions; /* by kind */
	struct job *first, **end; /* by age */
	uint64_t last_id, running, queued, kept; /* queued: without checks that wait for their publisher */
};

/* actions: of each kind, for as long as the table is there. */
void job_table_init(struct job_table *table, const struct job_actions *const actions[JOB_KINDS]);
void job_table_clear(struct job_table *table);

/* A queued job without particulars; -EDQUOT: JOBS_QUEUED_MAX; of a check CHECKS_OPEN_MAX and CHECKS_OPEN_PER_UID_MAX. */
int job_new(struct work *work, enum job_kind kind, const char *model, const char *tag, uid_t uid,
	    struct job **ret_job, struct error *error);
/* A check, from here on, waits for its publisher to hand in (hand_in_await): it needs no loader before that. */
void job_awaits_publisher(struct job_table *table, struct job *job);
/* It has what it is to check. */
void job_handed_in(struct job_table *table, struct job *job);
/* Forgets a queued job that nobody has heard of yet. */
void job_drop(struct job_table *table, struct job *job);
/* Copies one more device. -ENOMEM. */
int job_add_device(struct job *job, struct device *device);
/* NULL: never was, or forgotten. */
struct job *job_find(const struct job_table *table, uint64_t id);
/* The oldest that waits for a loader and has what to do, after this one (NULL: of all); NULL. checks false: of the loads
 * only. */
struct job *job_queued(const struct job_table *table, const struct job *after, bool checks);
/* The oldest check that waits for its publisher; NULL. */
struct job *job_awaiting(const struct job_table *table);
/* Checks of this user that wait for a loader, and stand before this job. */
uint64_t job_queued_checks(const struct job_table *table, uid_t uid, const struct job *before);
bool job_ended(const struct job *job);
/* Forgets ended ones above JOBS_KEPT_MAX and JOB_KEPT_SECONDS. */
void job_table_prune(struct job_table *table);

/* Gives back the contexts that no loader has. */
void job_release_contexts(struct job *job);

/* Writes what the loader is told of it. */
void job_put(struct message_writer *w, const struct job *job, const struct config *config);
/* Of a queued one: why it has no loader, "" where one is coming. */
void job_waits(struct work *work, struct job *job, const char *why);
/* A loader has it. */
void job_start(struct work *work, struct job *job, struct loader *loader);
/* Its loader is gone and had not begun it: it waits for another one. */
void job_again(struct work *work, struct job *job);
/* The loader told how far it is. */
void job_progress(struct work *work, struct job *job, const char *phase, uint64_t done, uint64_t total);
/* It told what an operator should know. */
void job_remark(struct work *work, struct job *job, const char *note);
/* There is something to do now, or some of it was done: from here on silence is suspicious. */
void job_watch(struct job *job);
/* Its version is on its way into the fd store. */
bool job_is_storing(const struct work *work, const struct job *job);
/* It ends: done with error NULL, else cancelled (-ECANCELED after job_cancel)
 * or failed. What it had not finished fails with it. A load is what its version is: done when that is ready, and
 * while that is being stored it goes on. */
void job_end(struct work *work, struct job *job, const struct error *error);
/* A version is ready (error NULL) or failed: so is the load that makes it. */
void jobs_conclude(struct work *work, const struct version_id *version, const struct error *error);
/* The jobs that made or checked this version are told what did not follow from its being
 * ready: it does not fail them. */
void job_note(struct job_table *table, const struct version_id *version, const struct error *error);
/* Ends a queued job at once. The loader of a running one is told before the loop sleeps, and killed if it does not end. */
void job_cancel(struct work *work, struct job *job, const struct error *reason);
/* Cancels the jobs that read the memory of this version, which is to be freed. */
void jobs_cancel_readers(struct work *work, const struct version *version);

#endif
