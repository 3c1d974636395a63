#include "../../base/clock.h"
#include "loader_internal.h"
#include "../../net/session.h"
#include "../jobs/job.h"
#include "../../../proto/wire/messages.h"

void loader_assign(struct loader *l, struct job *job)
{
	struct work *work = l->pool->work;
	struct message_writer w;
	int fds[PACKET_FDS_MAX];
	struct parcel with = {.fds = fds};

	if (job->verifies || job->moves) {
		l->reads = job->version;
		l->reads_replica = job->replica;
	} else if (job->shares) {
		l->reads = job->shares->id;
		l->reads_replica = READS_EVERY_REPLICA;
	}
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_JOB);
	with.fd_count = job_put(&w, job, work->config, fds);
	with.close_fds = job->actions->begin && job->actions->begin(job);
	job_hand_contexts(job, l);
	if (job->kind == JOB_CHECK) { /* until the process ends: it maps memory of this user */
		l->checks = true;
		l->uid = job->uid;
		l->by_operator = job->by_operator;
	}
	/* The descriptors of other jobs are gone with their message. */
	l->unbegun = job->kind == JOB_LOAD || job->kind == JOB_REGION || job->kind == JOB_MOVE ||
		     job->publisher_sock >= 0;
	l->state = LOADER_BUSY;
	l->job = job;
	loader_notify(l, &w, &with);
	job_start(work, job, l);
	job_watch(job);
	loader_watch(l);
	if (l->keeps)
		uv_timer_start(&l->timer, loader_on_timer, KEEP_BEGIN_MS, 0);
}
