#include "checkers.h"

#include "daemon/work/jobs/job_check.h"

static struct {
	struct job *job;
	int publisher, checker; /* the publisher's session, and its end of the socket to the checker */
} parts[CHECKS_OPEN_PER_UID_MAX];
static size_t part_count;

void begin_checkers(void)
{
	begin(0);
	config.keep_checker_s = KEEP_S;
}

void finish_checkers(void)
{
	while (part_count-- > 0) {
		close(parts[part_count].publisher);
		close(parts[part_count].checker);
	}
	finish();
}

static struct job *newest_part(void)
{
	struct job *newest = NULL;

	for (struct job *job = server->work.jobs.first; job; job = job->next) {
		if (job->hand_in)
			newest = job;
	}
	cr_assert_not_null(newest);
	return newest;
}

struct job *begin_part(const char *name, const char *device, uid_t uid)
{
	int publisher = greeted(SESSION_ADMIN), checker;
	struct job *job;

	if (name)
		SEND(publisher, 2, "publish_begin", TEXT("name", name), TEXT("device", device),
		     NUMBER("bytes", 4096));
	else
		SEND(publisher, 2, "publish_begin", TEXT("device", device), NUMBER("bytes", 4096));
	cr_assert_eq(answered_later(publisher), 0, "%s", message.error.message);
	cr_assert_eq(packet_take_fd(&packet, 0, &checker), 0);
	job = newest_part();
	job->uid = uid;
	job->by_operator = false;
	parts[part_count].job = job;
	parts[part_count].publisher = publisher;
	parts[part_count++].checker = checker;
	return job;
}

void hand_over(const struct job *job)
{
	size_t i = part_count;

	while (parts[--i].job != job)
		cr_assert_gt(i, 0);
	cr_assert_eq(packet_send(parts[i].checker, "x", 1, NULL, 0), 0);
	turn();
}

struct job *hand_in(const char *name, const char *device, uid_t uid)
{
	struct job *job = begin_part(name, device, uid);

	hand_over(job);
	return job;
}

bool checks_and_stays(int sock, const struct job *job)
{
	send_checked(sock, &check_job_of(job)->publish, job->devices[0]->id);
	TURN_UNTIL(comes(sock) && message.type == MESSAGE_RESPONSE);
	cr_assert_eq(message.error.code, 0, "%s", message.error.message);
	return says_done_and_stays(sock, 0);
}

void stay(void)
{
	struct job *job = hand_in(NULL, GPU, ONE);

	expect_job(loader);
	next = standby_with(-1);
	cr_assert(checks_and_stays(loader, job));
	cr_assert_eq(gpu->contexts, CONTEXT);
}
