/* Verify jobs, and the scrub that makes them: a loader reads the memory of one part again and compares it with the index. gpuwmd does not free a version while
 * such a job reads it, and cancels the job if nothing else holds the version. */
#ifndef GPUWM_DAEMON_VERIFY_H
#define GPUWM_DAEMON_VERIFY_H

#include "job.h"
#include "../../ledger/registry.h"
#include "../../../proto/wire/packet.h"
#include "../../../base/errors.h"
#include "../../../proto/wire/messages_look.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct message_writer;
struct scrub;
struct work;

struct verify_job {
	struct job job;
	uint64_t chunk, permille; /* its pace; 0: as fast as can be */
	bool of_copy; /* the part's host copy is read */
	char *source; /* owned: the files that are read, and not the memory; NULL: the memory is */
};

/* Returns the verify that the job is, or NULL if the job is of another kind. */
static inline struct verify_job *verify_job_of(const struct job *job)
{
	return job->kind == JOB_VERIFY ? (struct verify_job *)job : NULL;
}

/* Queues a job for the part at this position of a ready or retiring version. Sets *ret_job, which belongs to the table of jobs.
 * Fails with -EINVAL (it lies on files), -EBUSY (it is on its way to another tier), -EDQUOT and -ENOMEM. */
int verify_new(struct work *work, struct version *version, uint32_t replica, uid_t uid, struct job **ret_job,
	       struct error *error);
/* The same for the part's host copy. If it is damaged, it goes, and the version is sound. Fails with -EINVAL if there is none. */
int verify_new_of_copy(struct work *work, struct version *version, uint32_t replica, uid_t uid,
		       struct job **ret_job, struct error *error);
/* The same for a job that compares the files that the version comes back from with the part's index. The version may lie on any
 * tier, and move meanwhile. Fails with -EINVAL if no files are known, with -EDQUOT, -ENODEV and -ENOMEM. */
int verify_new_of_source(struct work *work, struct version *version, uint32_t replica, uid_t uid,
			 struct job **ret_job, struct error *error);
/* The actions of a verify job, which a job of the scrub has too (job_actions in job.h). gpuwmd does not free the version between
 * verify_begin and verify_end. The descriptors stay the version's. If the job ends with -EBADMSG, the version is tainted, unless the job
 * read files: its memory may be as it was. */
size_t verify_put(struct message_writer *w, const struct job *job, const struct config *config,
		  int ret_fds[PACKET_FDS_MAX]);
bool verify_begin(struct job *job);
void verify_end(struct work *work, struct job *job, const struct error *error);
/* Taints the part of `version` that a loader has read for the job, because the memory differs from the index. Taints the other
 * versions that share the damaged segment too, if the loader has named one. */
void verify_taint(struct work *work, const struct job *job, struct version *version, const struct error *found);

/* ---- the scrub: scrub.c ----
 * It verifies all ready versions again and again, one part at a time, at a pace that workers do not notice. All other jobs
 * go first: the scrub begins a part only if there is a loader to spare. It gives the part up, and begins it again later, if
 * another job needs the loader or the room for a context. Between parts it holds nothing. */

/* Returns NULL if there is no memory. */
struct scrub *scrub_new(struct work *work);
/* Frees the scrub, whose timer closes on its own. Returns NULL. NULL is fine here and below: there is no scrub then. */
struct scrub *scrub_free(struct scrub *scrub);
/* Takes the interval of the configuration over. If it has changed, it begins now. 0: there are no more passes. */
void scrub_configure(struct scrub *scrub);
/* Call it when gpuwmd has taken over the ledger of an earlier gpuwmd. The interval counts from scrub_from_ms of the ledger: the
 * beginning of the last complete pass, or the first start. So restarts do not put a pass off. */
void scrub_begin(struct scrub *scrub);

/* Returns a queued job for the next part, with its contexts charged, for a pool that has a loader to spare. NULL: there is no
 * part to read, or none that can be read now. */
struct job *scrub_next(struct scrub *scrub);
/* Returns whether a pass has a part to read that it could not begin. */
bool scrub_waits(const struct scrub *scrub);
/* Gives the current part up, because another job needs the loader. */
void scrub_give_way(struct scrub *scrub);
/* Returns what the method `status` tells of it. It points into `scrub`. */
struct scrub_told scrub_tell(const struct scrub *scrub);

#endif
