/* Verify jobs: a loader reads the memory of one replica again and compares it with the index. The
 * version is not freed while one runs; nobody else having it, the job is ended for it. */
#ifndef GPUWM_DAEMON_VERIFY_H
#define GPUWM_DAEMON_VERIFY_H

#include "../ledger/registry.h"

struct job;
struct message_writer;
struct work;

/* A queued job for the replica at this position of a ready or retiring version. -EDQUOT, -ENOMEM. */
int verify_new(struct work *work, struct version *version, uint32_t replica, uid_t uid, struct job **ret_job,
	       struct error *error);
/* A loader gets it: the version is held until verify_end. Fills in the descriptors of the index and the
 * segments, which stay the version's; how many. */
size_t verify_begin(const struct job *job, int ret_fds[PACKET_FDS_MAX]);
/* What the loader is told of it. */
void verify_put(struct message_writer *w, const struct job *job);
/* The job has ended: with -EBADMSG the version is tainted. */
void verify_end(struct work *work, struct job *job, const struct error *error);
/* Nobody needs to know any more: the version is to be freed. Queued jobs end now, running ones soon. */
void verify_cancel(struct work *work, const struct version *version);

#endif
