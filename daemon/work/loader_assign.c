#include "../base/clock.h"
#include "loader_internal.h"
#include "../net/session.h"
#include "verify.h"
#include "../../proto/methods.h"

#include <unistd.h>

void loader_notify(struct loader *l, struct message_writer *w, const struct parcel *with)
{
	struct parcel parcel = *with;

	message_end(w);
	if (message_finish(w) == 0) {
		parcel.data = w->buffer.data;
		parcel.bytes = w->buffer.size;
		session_send(l->session, &parcel);
	} else {
		for (size_t i = 0; parcel.close_fds && i < parcel.fd_count; i++)
			close(parcel.fds[i]);
		session_end(l->session);
	}
	message_writer_clear(w);
}

/* What goes with a job: to a checker its publisher's socket, to whoever verifies the part. */
static struct parcel give_descriptors(struct loader *l, struct job *job, int fds[PACKET_FDS_MAX])
{
	struct parcel parcel = {.fds = fds};

	if (job->kind == JOB_VERIFY) {
		l->reads = job->version;
		l->reads_replica = job->replica;
		parcel.fd_count = verify_begin(job, fds);
	} else if (job->publisher_sock >= 0) {
		parcel.close_fds = true;
		fds[parcel.fd_count++] = job->publisher_sock;
		job->publisher_sock = -1;
	}
	return parcel;
}

void loader_assign(struct loader *l, struct job *job)
{
	struct work *work = l->pool->work;
	struct message_writer w;
	int fds[PACKET_FDS_MAX];
	struct parcel with;

	with = give_descriptors(l, job, fds);
	job_hand_contexts(job, l);
	l->unbegun = l->state == LOADER_WARM;
	l->state = LOADER_BUSY;
	l->job = job;
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_LOADER_JOB);
	job_put(&w, job, work->config);
	loader_notify(l, &w, &with);
	job_start(work, job, l);
	job_watch(job);
	loader_watch(l);
	if (l->unbegun)
		uv_timer_start(&l->timer, loader_on_timer, KEEP_BEGIN_MS, 0);
}
