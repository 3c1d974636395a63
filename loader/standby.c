#include "standby.h"

#include "devices/devices.h"
#include "job.h"
#include "jobs.h"
#include "../service/log.h"
#include "devices/loss.h"
#include "files/roots.h"

#include "../client/lib/calls/connect.h"
#include "../proto/wire/messages.h"
#include "../service/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct standby {
	struct work work;
	const struct standby_roots *roots;
	bool assigned, report_wanted;
	struct lookout *lookout;
	struct roots_look *look;
	struct job job;
	struct prepare
		/* of a job, or kept for the next one; it ends after gpuwmd was told, since that
		 * takes time */
		*prepare;
	bool warm_wanted; /* gpuwmd wants contexts to be made and kept before there is a load */
	struct job warm; /* names the GPUs of these contexts, or the GPU of a check */
	struct hold *hold; /* the copy that this process holds; NULL: none */
	struct load_plan plan; /* the result of a dry run */
	struct error refused; /* why a job could not be parsed */
};

static void standby_notified(struct message *message, struct packet *packet, void *user_data, uint64_t round)
{
	struct standby *s = user_data;
	struct report_params params;
	struct error unused;

	(void)round;
	if (strcmp(message->method, form_job_cancel.name) == 0) {
		s->work.cancelled = true;
	} else if (strcmp(message->method, form_report.name) == 0) {
		s->report_wanted = true;
		if (record_read(form_report.params, message, &params, &unused) < 0)
			return;
		lookout_told(s->lookout, params.devices.items, params.devices.count);
		if (params.roots.count > 0)
			roots_look_begin(s->look, params.roots.items, params.roots.count);
	} else if (strcmp(message->method, NOTIFY_JOB) == 0 && !s->assigned) {
		s->assigned = true;
		job_parse(message, packet, &s->job, &s->refused);
	} else if (strcmp(message->method, form_warm.name) == 0 && !s->prepare) {
		s->warm_wanted = true;
		job_parse_warm(message, &s->warm, &s->refused);
	}
}

static int call_hello(struct standby *s, const struct devices_found *found, int pidfd, struct reply *ret_reply,
		      struct error *error)
{
	const uint64_t pid = (uint64_t)getpid(), position = 0;
	const struct loader_hello_params params = {.protocol_min = PROTOCOL_MIN,
						   .protocol_max = PROTOCOL_MAX,
						   .pid = &pid,
						   .pidfd = pidfd >= 0 ? &position : NULL,
						   .devices = {found->told, (uint32_t)found->list.count}};
	struct message_writer w;
	int r;

	message_write_request(&w, request_next_id(), &form_loader_hello, &params);
	r = connection_call_with(s->work.connection, &w, &(struct descriptors){&pidfd, pidfd >= 0},
				 CALL_TIMEOUT_MS, ret_reply, error);
	message_writer_clear(&w);
	return r;
}

static int say_hello(struct standby *s, struct error *error)
{
	struct devices_found found;
	struct loader_hello_result result;
	struct reply reply;
	/* gpuwmd learns from the pidfd when this process is really gone: its socket ends earlier. A kernel
	 * before 5.3 has no pidfds. */
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), r;

	if (pidfd < 0 && errno != ENOSYS)
		return error_set(error, -errno, NULL, "gpuwm-loader could not open a pidfd of itself: %s",
				 strerror(errno));
	r = devices_find(&found, error);
	if (r == 0) {
		r = call_hello(s, &found, pidfd, &reply, error);
		devices_found_clear(&found);
	}
	if (pidfd >= 0)
		close(pidfd);
	if (r < 0)
		return r;
	if (reply_read(&reply, &form_loader_hello, &result, NULL) == 0) {
		lookout_told(s->lookout, result.devices.items, result.devices.count);
		if (result.roots.count > 0)
			roots_look_begin(s->look, result.roots.items, result.roots.count);
	}
	reply_clear(&reply);
	return 0;
}

static int tell_devices(struct standby *s, struct error *error)
{
	struct device_found_lost lost[LOOKOUT_DEVICES_MAX];
	const char *back[LOOKOUT_DEVICES_MAX];
	struct loader_devices_params params = {.lost.items = lost, .back.items = back};
	struct devices_found found;
	struct message_writer w;
	int r;

	s->report_wanted = false;
	r = devices_find(&found, error);
	if (r < 0)
		return r;
	params.devices.items = found.told;
	params.devices.count = (uint32_t)found.list.count;
	params.lost.count = lookout_lost(s->lookout, lost);
	params.back.count = lookout_back(s->lookout, back);
	message_write_notification(&w, &form_loader_devices, &params);
	lookout_has_told(s->lookout);
	r = connection_notify(s->work.connection, &w, error);
	message_writer_clear(&w);
	devices_found_clear(&found);
	return r;
}

/* Begins to make the context for a check after which this process may stay. Meanwhile the check goes on as far as it needs no
 * context. If this one can't be made, the check makes one of its own, which is not kept. */
static void standby_begin_context(struct standby *s)
{
	struct error unused;

	s->warm = (struct job){.keep = true, .device_count = 1, .publisher = -1};
	snprintf(s->warm.devices[0], sizeof(s->warm.devices[0]), "%s", s->job.device);
	prepare_start(&s->warm, &s->prepare, &unused);
}

/* Checks a part that is received from the publisher, and hands it on to gpuwmd if it is what it says. */
static int standby_check(struct standby *s, struct error *error)
{
	const struct job *job = &s->job;
	struct work *work = &s->work;
	struct part in;
	struct check_part part = {
		.device = job->device,
		.rank = job->rank,
		.world = job->world,
		.bytes_max = job->bytes,
		.part = &in,
	};
	struct check_result result;
	struct error unused;
	uint64_t declared = 0;
	int r;

	if (job->keep)
		standby_begin_context(s);
	r = work_phase(work, "waiting for the publisher", 0);
	if (r == 0)
		r = hand_in_receive(job->publisher, work, &in, error);
	if (r < 0)
		return r;
	/* Otherwise the check might make a context beside this one, load the kernels there too, and end it. If the
	 * connection is gone or the job was cancelled, the check notices it itself. */
	prepare_wait(s->prepare, work_advance, work, &unused);
	for (uint32_t i = 0; i < in.segment_count; i++)
		declared += in.segments[i].bytes;
	r = work_phase(work, "checking", declared);
	if (r == 0)
		r = check_part(&part, work_advance, work, &result, error);
	if (r == 0 && result.report.note[0])
		work_note(work, "%s", result.report.note);
	if (r == 0)
		r = work_phase(work, "handing in", 0);
	if (r == 0)
		r = report_checked(work, &job->publish, &part, &result, NULL, error);
	part_close(&in);
	return r;
}

/* A loader that a service starts goes by its own configuration, and not by the job's. Files that come as descriptors need no root. */
static int own_settings(struct standby *s, struct error *error)
{
	int r;

	if (!s->roots->own || (s->job.kind == JOB_LOAD && s->job.publisher >= 0))
		return 0;
	roots_clear(&s->job.roots);
	r = roots_read(s->roots->file, &s->job.roots, error);
	if (r < 0 || !peer_source(s->job.source))
		return r;
	peer_settings_clear(&s->job.peers);
	return peer_settings_read(s->roots->file, &s->job.peers, error);
}

static int standby_move(struct standby *s, struct error *error)
{
	int r = prepare_start(&s->job, &s->prepare, error);

	if (r == 0)
		r = own_settings(s, error);
	return r < 0 ? r : move_run(&s->job, &s->work, s->prepare, error);
}

static int standby_load(struct standby *s, struct error *error)
{
	int r = s->job.dry_run ? 0 : prepare_start(&s->job, &s->prepare, error);

	if (r == 0)
		r = own_settings(s, error);
	if (r < 0)
		return r;
	if (peer_source(s->job.source))
		return s->job.dry_run ? peer_load_dry_run(&s->job, &s->work, &s->plan, error)
				      : peer_load_run(&s->job, &s->work, error);
	return s->job.dry_run ? load_dry_run(&s->job, &s->work, &s->plan, error)
			      : load_run(&s->job, &s->work, s->prepare, error);
}

static int run_kind(struct standby *s, struct error *error)
{
	switch (s->job.kind) {
	case JOB_LOAD:
		return standby_load(s, error);
	case JOB_CHECK:
		return standby_check(s, error);
	case JOB_VERIFY:
		return verify_run(&s->job, &s->work, error);
	case JOB_MOVE:
		return standby_move(s, error);
	case JOB_HOLD:
		return hold_run(&s->job, &s->work, &s->hold, error);
	default:
		return region_run(&s->job, &s->work, error);
	}
}

static void run_job(struct standby *s, struct error *error)
{
	bool ended;
	int r;

	s->work.damaged = -1;
	if (s->refused.code) {
		*error = s->refused;
		return;
	}
	r = run_kind(s, error);
	/* Before the connection is looked at, which may bring a cancel. That to another node may be reset too, and then the error says so. If
	 * a cancel came when everything was done, there is nothing left to end. */
	ended = r < 0 &&
		(s->work.cancelled ||
		 (r == -ECONNRESET && (error->code != r || connection_poll(s->work.connection, 0) < 0)));
	if (ended)
		work_stopped(&s->work, s->work.cancelled ? -ECANCELED : r, error);
	else if (r < 0 && !error->code)
		error_set(error, r, NULL, "failed while %s: %s", s->work.phase, strerror(-r));
	else if (r == 0)
		error->code = 0;
}

/* ---- contexts that are kept ---- */

static int look_whether_gone(uint64_t bytes, void *user_data)
{
	struct standby *s = user_data;

	(void)bytes;
	return connection_poll(s->work.connection, 0) < 0 ? -ECONNRESET : 0;
}

/* Makes the contexts that gpuwmd wants to be kept, and reports how that went. Fails with
 * -ECONNRESET if gpuwmd is gone. */
static int warm_up(struct standby *s)
{
	struct error error = s->refused;
	int r = error.code;

	s->warm_wanted = false;
	s->refused = (struct error){0};
	if (r == 0)
		r = prepare_start(&s->warm, &s->prepare, &error);
	if (r == 0)
		r = prepare_buffers(s->prepare, 0, &error);
	if (r == 0)
		r = prepare_wait(s->prepare, look_whether_gone, s, &error);
	if (r == -ECONNRESET)
		return r;
	if (r == 0 && s->prepare)
		r = prepare_keep(s->prepare, &error);
	if (r == 0)
		error.code = 0;
	return report_warm(s->work.connection, &error);
}

/* Fails with -ESTALE if a context that is kept can't be used any more. The process then ends, which
 * tells gpuwmd. */
static int check_kept(const struct standby *s)
{
	struct error error;

	if (prepare_check(s->prepare, &error) == 0)
		return 0;
	log_plain("a CUDA context that was kept can't be used any more: %s (%s)", error.message, error.detail);
	return -ESTALE;
}

/* ---- its life ---- */

/* Waits until there is a job. Fails with -ECONNRESET if gpuwmd is gone, and with -ESTALE as
 * check_kept does. */
static int wait_for_job(struct standby *s, struct error *error)
{
	int r = check_kept(s);

	while (r == 0 && !s->assigned) {
		if (s->warm_wanted)
			r = warm_up(s);
		if (r == 0 && (lookout_turn(s->lookout) || s->report_wanted))
			r = tell_devices(s, error);
		if (r == 0)
			r = connection_poll(s->work.connection, lookout_wait_ms(s->lookout));
		if (r >= 0)
			r = check_kept(s);
	}
	return r;
}

/* Tells gpuwmd that a GPU is lost before it learns that the job failed. So gpuwmd refuses the next
 * one. */
static void look_for_loss(struct standby *s, const struct error *failed)
{
	const struct job *job = &s->job;
	bool news = false;

	if (!failed->code || failed->code == -ECONNRESET || s->work.cancelled)
		return;
	if (job->device[0])
		news = lookout_after_failure(s->lookout, job->device);
	for (size_t i = 0; i < job->device_count; i++)
		news = lookout_after_failure(s->lookout, job->devices[i]) || news;
	if (news)
		tell_devices(s, &(struct error){0});
}

/* Whether another job can use what this job made besides its version. If the job failed, nothing
 * is kept. */
static bool can_keep(struct standby *s, const struct error *failed)
{
	struct error why;

	if (failed->code || s->work.cancelled || !s->job.keep || !s->prepare)
		return false;
	/* A check does not notice that its context was not made beside it. */
	if (prepare_wait(s->prepare, look_whether_gone, s, &why) == 0 && prepare_keep(s->prepare, &why) == 0)
		return true;
	log_plain("its CUDA contexts are not kept: %s (%s)", why.message, why.detail);
	return false;
}

/* Holds the copy until gpuwmd ends the connection, or is gone. If the copy can't be used any more, the process ends, which tells
 * gpuwmd. */
static void hold_on(struct standby *s)
{
	struct error error = {0};
	int r = 0;

	while (r >= 0 && (r = hold_check(s->hold, &error)) == 0)
		r = connection_poll(s->work.connection, LOOKOUT_MS);
	if (r < 0 && r != -ECONNRESET)
		log_plain("the copy of %s@%s can't be used any more: %s (%s)", s->job.model, s->job.tag,
			  error.message, error.detail);
}

/* Does one job. Sets *ret_stays if gpuwmd wants this loader for another job, now or later. */
static int do_job(struct standby *s, bool *ret_stays)
{
	const bool dry_run = s->job.dry_run;
	struct error error = {0};
	bool keeps;
	int r;

	/* With contexts that still work the job begins at once. If the loader did not say so soon,
	 * gpuwmd would give the job to another one. */
	if (s->prepare)
		work_phase(&s->work, "starting", 0);
	run_job(s, &error);
	look_for_loss(s, &error);
	keeps = s->hold || can_keep(s, &error);
	if (keeps && !s->hold) {
		/* What belongs to the job goes before the next one. */
		job_clear(&s->job);
		s->assigned = false;
		s->work.phase = "waiting";
	}
	r = report_done(&s->work, &error, &s->job, dry_run ? &s->plan : NULL, keeps, ret_stays);
	if (!s->hold)
		return r;
	if (r == 0 && *ret_stays)
		hold_on(s);
	s->hold = hold_end(s->hold);
	*ret_stays = false;
	return 0;
}

/* Serves gpuwmd from hello to the end of the last job. The connection is made already. */
static int standby_serve(struct standby *s)
{
	struct error error = {0};
	bool stays = true;
	int r = say_hello(s, &error);

	if (r < 0) {
		log_plain("%s (%s)", error.message, error.detail);
		return r;
	}
	while (r == 0 && stays) {
		r = wait_for_job(s, &error);
		if (r < 0) {
			s->prepare = prepare_leave(s->prepare);
			return r == -ECONNRESET || r == -ESTALE ? 0 : r;
		}
		r = do_job(s, &stays);
	}
	s->prepare = prepare_busy(s->prepare) ? prepare_leave(s->prepare) : prepare_end(s->prepare);
	return r;
}

int standby_run(int sock, const struct standby_roots *roots)
{
	struct standby *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->job.publisher = -1;
	s->work.phase = "waiting";
	s->roots = roots;
	s->lookout = lookout_new();
	s->look = roots_look_new(sock, roots);
	r = s->lookout && s->look ? connection_new(sock, &s->work.connection) : -ENOMEM;
	if (r == 0) {
		connection_on_notify(s->work.connection, standby_notified, s, 0);
		r = client_adopt(s->work.connection, &s->work.client);
		if (r == 0)
			r = standby_serve(s);
	}
	job_clear(&s->job);
	lookout_free(s->lookout);
	roots_look_free(s->look);
	if (s->work.client)
		gpuwm_close(s->work.client);
	else
		connection_free(s->work.connection);
	free(s);
	return r;
}
