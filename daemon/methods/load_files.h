/* Loads whose files come as descriptors, through a socket from whoever asked to the loader: gpuwmd takes descriptors from loaders
 * only. Their version counts as published by the user who asked. */
#ifndef GPUWM_DAEMON_LOAD_FILES_H
#define GPUWM_DAEMON_LOAD_FILES_H

#include "server.h"

struct load_params;

/* Whether the session may begin this load. Fails with -EACCES; and as claims_check, if another user builds the version. */
int load_rights(const struct request *request, const struct load_params *params, bool by_operator,
		struct error *error);
/* Checks the source of a load with files, which only names them. Fails with -EINVAL. */
int load_files_check(const struct load_params *params, struct error *error);
/* The version of the load is charged, and its turn comes, as a publisher's, and its alias moves by the rights of the user's present
 * groups: the user may have gone by then. Fails with -ENOMEM. */
int load_as_publisher(struct job *job, const struct request *request);
/* Makes the socket. The job has one end; sets *ret_sock to the other one, the caller's. Fails with -EDQUOT and others. */
int load_take_files(struct job_table *jobs, struct job *job, int *ret_sock, struct error *error);
/* Answers with the job, and with the socket, which it takes over; -1: there is none. */
void load_answer(const struct request *request, const struct job *job, int sock);

#endif
