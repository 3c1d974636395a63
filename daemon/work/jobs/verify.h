/* Verify jobs: a loader reads the memory of one part again and compares it with the index. gpuwmd does not free a version while
 * such a job reads it, and cancels the job if nothing else holds the version. */
#ifndef GPUWM_DAEMON_VERIFY_H
#define GPUWM_DAEMON_VERIFY_H

#include "../../ledger/registry.h"
#include "../../../proto/wire/packet.h"

struct config;
struct job;
struct message_writer;
struct work;

/* Queues a job for the part at this position of a ready or retiring version. Sets *ret_job, which belongs to the table of jobs.
 * Fails with -EINVAL (it lies on files), -EBUSY (it is on its way to another tier), -EDQUOT and -ENOMEM. */
int verify_new(struct work *work, struct version *version, uint32_t replica, uid_t uid, struct job **ret_job,
	       struct error *error);
/* The actions of a verify job, which a job of the scrub has too (job_actions in job.h). gpuwmd does not free the version between
 * verify_begin and verify_end. The descriptors stay the version's. If the job ends with -EBADMSG, the version is tainted. */
size_t verify_put(struct message_writer *w, const struct job *job, const struct config *config,
		  int ret_fds[PACKET_FDS_MAX]);
bool verify_begin(struct job *job);
void verify_end(struct work *work, struct job *job, const struct error *error);

#endif
