/* The sockets through which a check gets what was published, and a load its files. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int job_check_sockets(const struct job_table *table, uid_t uid, bool by_operator, struct error *error)
{
	static const struct share_table share = {.all = CHECKS_OPEN_MAX,
						 .most = CHECKS_OPEN_PER_UID_MAX,
						 .noun = "open parts and waiting loads of files",
						 .remedy = "commit some first, and let loads begin"};
	struct share_held held = {0};

	for (const struct job *job = table->first; job; job = job->next) {
		if (job->state != JOB_QUEUED || !job->holds_socket)
			continue;
		if (job->asked_by_operator)
			held.operators++;
		else if (!by_operator && job->uid == uid)
			held.own++;
		else
			held.others++;
	}
	return job_check_share(&share, &held, uid, by_operator, error);
}

int job_take_files(struct job_table *table, struct job *job, struct error *error)
{
	int r = job_check_sockets(table, job->uid, job->asked_by_operator, error);

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
