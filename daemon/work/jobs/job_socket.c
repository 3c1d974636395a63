/* The sockets through which a check gets what was published, and a load its files. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int job_check_sockets(const struct job_table *table, uid_t uid, struct error *error)
{
	uint64_t all = 0, own = 0;

	for (const struct job *job = table->first; job; job = job->next) {
		if (job->state != JOB_QUEUED || !job->holds_socket)
			continue;
		all++;
		own += job->uid == uid;
	}
	if (own >= CHECKS_OPEN_PER_UID_MAX)
		return error_set(error, -EDQUOT, "commit some first, and let loads begin",
				 "uid %u has all %d open parts and waiting loads of files that it may have",
				 (unsigned)uid, CHECKS_OPEN_PER_UID_MAX);
	if (all >= CHECKS_OPEN_MAX)
		return error_set(error, -EDQUOT, "try again when other publishers have committed",
				 "gpuwmd has all %d open parts and waiting loads of files that it may have",
				 CHECKS_OPEN_MAX);
	return 0;
}

int job_take_files(struct job_table *table, struct job *job, struct error *error)
{
	int r = job_check_sockets(table, job->uid, error);

	job->holds_socket = r == 0;
	return r;
}

bool job_hand_on(struct job *job)
{
	if (job->publisher_sock < 0)
		return false;
	job->publisher_sock = fcntl(job->publisher_sock, F_DUPFD_CLOEXEC, 0);
	return true;
}

void job_close_socket(struct job *job)
{
	if (job->publisher_sock >= 0)
		close(job->publisher_sock);
	job->publisher_sock = -1;
}
