/* Verify jobs: a loader reads the memory of one replica again and compares it with the index. The
 * version is not freed while one runs; nobody else having it, the job is ended for it. */
#ifndef GPUWM_DAEMON_VERIFY_H
#define GPUWM_DAEMON_VERIFY_H

#include "../ledger/registry.h"

struct config;
struct job;
struct message_writer;
struct work;

/* A queued job for the replica at this position of a ready or retiring version. -EDQUOT, -ENOMEM. */
int verify_new(struct work *work, struct version *version, uint32_t replica, uid_t uid, struct job **ret_job,
	       struct error *error);
/* The actions of a verify job, for the scrub's too. From verify_begin to verify_end the version is not freed; the
 * descriptors of the index and the segments stay the version's. With -EBADMSG as its end the version is tainted. */
void verify_put(struct message_writer *w, const struct job *job, const struct config *config);
size_t verify_begin(struct job *job, int ret_fds[PACKET_FDS_MAX], bool *ret_close);
void verify_end(struct work *work, struct job *job, const struct error *error);

#endif
