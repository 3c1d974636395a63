/* Copies by legacy CUDA IPC (ledger/ipc_copy.h): a job of the kind `hold` makes one, and its loader stays as the holder. */
#ifndef GPUWM_DAEMON_COPIES_H
#define GPUWM_DAEMON_COPIES_H

#include "../work.h"

/* Makes a copy of the part for this user, and queues the job that fills it. Sets *ret_copy, which has no lease yet. If there is no room on
 * the device, or there are as many copies as may be, idle ones that are in the way end. Their room is free when their holders have exited.
 * Fails with the codes of ipc_copy_add and job_new. */
int copies_make(struct work *work, struct version *version, uint32_t replica, uid_t uid,
		struct ipc_copy **ret_copy, struct error *error);

/* Notes that the job's loader has filled the copy. Takes the array of handles over. Fails with -EINVAL if `count` is not the number of
 * the part's segments. */
int copies_filled(struct job *job, struct ipc_handle *handles, uint32_t count, const struct ipc_handle *event,
		  struct error *error);
/* Returns whether the job's loader has filled a copy that is still wanted. */
bool copies_job_filled(const struct job *job);

/* Ends the copies whose GPU is lost. */
void copies_lose(struct work *work);
/* Ends idle copies on devices where somebody waits for room. */
void copies_give_way(struct work *work);

/* Wakes sessions whose leases have ended while they waited for a copy. Ends copies that are lost, that were idle for keep_copy, or whose
 * version is being freed or was demoted. gpuwmd revokes the leases of a copy that ends, with the copy's error as the reason. The loop
 * calls it before it sleeps. */
void copies_settle(struct work *work);

#endif
