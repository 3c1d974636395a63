/* One job that gpuwmd gives: what all kinds have in common. Each kind has its own struct, which begins with a struct job, in its own
 * file. */
#ifndef GPUWM_LOADER_JOB_H
#define GPUWM_LOADER_JOB_H

#include "work.h"

#include "../proto/wire/messages_loader.h"

struct job {
	const struct job_kind *kind;
	const void *params; /* the message, owned: the struct of the kind's form */
	const struct job_place *place; /* in the message; NULL: it has none */
	/* Those that it uses, as the message names them. If the job fails, one of them may be lost. */
	const char *const *devices;
	uint32_t device_count;
	bool keep; /* the contexts stay for the next job, if all goes well */
};

struct job_kind {
	const char *name; /* as messages have it */
	const struct message_form *form;
	size_t place; /* where the message's struct has the job_place, whose device the job uses; 0: it has none */
	size_t bytes; /* of the kind's struct */
	/* Looks at what the rows of the form can't say, and takes the descriptors out of the packet. The struct is zeroed but for
	 * the job. Returns 0, or fails; then `clear` follows. NULL: there is nothing to do. */
	int (*take)(struct job *job, const struct message *message, struct packet *packet, struct error *error);
	/* Runs the job to its end. Afterwards this process holds nothing of the version but what came with the job; but see `check`.
	 * Returns 0. Fails with the error of any of its steps, with -ECANCELED, and with -ECONNRESET (work_stopped). */
	int (*run)(struct job *job, struct work *work, struct error *error);
	/* Of a kind whose work stays in this process until job_free: fails if it can't be used any more. NULL: nothing stays. */
	int (*check)(const struct job *job, struct error *error);
	/* Closes and frees what the struct has beside the job. NULL: nothing. */
	void (*clear)(struct job *job);
};

/* Makes the job of a message. Returns 0 and sets *ret, for job_free. Fails with -EINVAL, with -EBADMSG if a check or a load comes
 * without its socket, and with -EPROTO if a job comes without the descriptors of its part: that does not mean that the memory
 * differs. */
int job_make(const struct job_kind *kind, const struct message *message, struct packet *packet,
	     struct job **ret, struct error *error);
/* Ends it. Returns NULL; NULL is fine. */
struct job *job_free(struct job *job);

/* The same for a message of any kind. Fails also if there is no such kind (job_kinds.c). */
int job_parse(const struct message *message, struct packet *packet, struct job **ret, struct error *error);

/* For `take`: sets the job's devices, of which there must be one at least. Returns 0, or -EINVAL. */
int job_take_devices(struct job *job, const char *const *devices, uint32_t count, struct error *error);

/* What the kinds begin with whose messages have a part beside their rows. */
struct part_job {
	struct job job;
	struct part part; /* owned */
};

/* Their `take` and `clear`, as they are or as the first step. */
int part_job_take(struct job *job, const struct message *message, struct packet *packet, struct error *error);
void part_job_clear(struct job *job);

/* ---- the kinds ---- */

/* A source becomes a version, on one device or on several: job_load.c. */
extern const struct job_kind kind_load;
/* A part that a publisher hands in is compared with its index: job_check.c. */
extern const struct job_kind kind_check;
/* The memory of a part, or the files that describe it, are compared with its index again: verify.c. Only if they differ, the job fails
 * with -EBADMSG. */
extern const struct job_kind kind_verify;
/* One part of a version goes from one tier to another: move/move.c. */
extern const struct job_kind kind_move;
/* A copy of a part for processes that can't take descriptors (daemon/ledger/ipc_copy.h): hold.c. */
extern const struct job_kind kind_hold;
/* Memory of a region is made here, and handed over to gpuwmd: region.c. */
extern const struct job_kind kind_region;

#endif
