#include "standby.h"

#include "devices/devices.h"
#include "jobs.h"
#include "../service/log.h"
#include "devices/loss.h"

#include "../client/lib/calls/connect.h"
#include "../proto/wire/messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct standby {
	struct work work;
	bool assigned, report_wanted;
	struct lookout *lookout;
	struct roots_look *look;
	struct job *job; /* NULL: there is none, or it was refused */
	bool warm_wanted; /* gpuwmd wants contexts to be made and kept before there is a load */
	struct job *warm; /* names the GPUs of these contexts */
	struct error refused; /* why a job could not be parsed */
};

static int warm_take(struct job *job, const struct message *message, struct packet *packet, struct error *error)
{
	const struct warm_params *params = job->params;

	(void)message;
	(void)packet;
	return job_take_devices(job, params->devices.items, params->devices.count, error);
}

/* A message without a job's head, which nothing runs. */
static const struct job_kind kind_warm = {
	.name = "warm", .form = &form_warm, .bytes = sizeof(struct job), .take = warm_take};

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
	} else if (strcmp(message->method, form_warm.name) == 0 && !s->work.prepare && !s->warm_wanted) {
		s->warm_wanted = true;
		job_make(&kind_warm, message, packet, &s->warm, &s->refused);
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

static void run_job(struct standby *s, struct error *error)
{
	bool ended;
	int r;

	s->work.damaged = -1;
	if (s->refused.code) {
		*error = s->refused;
		return;
	}
	r = s->job->kind->run(s->job, &s->work, error);
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
		r = prepare_start(&(struct prepare_for){s->warm->devices, s->warm->device_count, .keeps = true},
				  &s->work.prepare, &error);
	s->warm = job_free(s->warm);
	if (r == 0)
		r = prepare_buffers(s->work.prepare, 0, &error);
	if (r == 0)
		r = prepare_wait(s->work.prepare, look_whether_gone, s, &error);
	if (r == -ECONNRESET)
		return r;
	if (r == 0 && s->work.prepare)
		r = prepare_keep(s->work.prepare, &error);
	if (r == 0)
		error.code = 0;
	return report_warm(s->work.connection, &error);
}

/* Fails with -ESTALE if a context that is kept can't be used any more. The process then ends, which
 * tells gpuwmd. */
static int check_kept(const struct standby *s)
{
	struct error error;

	if (prepare_check(s->work.prepare, &error) == 0)
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
	bool news = false;

	if (!failed->code || failed->code == -ECONNRESET || s->work.cancelled)
		return;
	for (uint32_t i = 0; s->job && i < s->job->device_count; i++)
		news = lookout_after_failure(s->lookout, s->job->devices[i]) || news;
	if (news)
		tell_devices(s, &(struct error){0});
}

/* Whether another job can use what this job made besides its version. If the job failed, nothing
 * is kept. */
static bool can_keep(struct standby *s, const struct error *failed)
{
	struct error why;

	if (failed->code || s->work.cancelled || !s->job->keep || !s->work.prepare)
		return false;
	/* A check does not notice that its context was not made beside it. */
	if (prepare_wait(s->work.prepare, look_whether_gone, s, &why) == 0 &&
	    prepare_keep(s->work.prepare, &why) == 0)
		return true;
	log_plain("its CUDA contexts are not kept: %s (%s)", why.message, why.detail);
	return false;
}

/* Holds what the job left here until gpuwmd ends the connection, or is gone. If it can't be used any more, the process ends, which tells
 * gpuwmd. */
static void hold_on(struct standby *s)
{
	struct error error;
	int r = 0;

	while (r >= 0) {
		r = s->job->kind->check(s->job, &error);
		if (r < 0)
			log_plain("%s (%s)", error.message, error.detail);
		else
			r = connection_poll(s->work.connection, LOOKOUT_MS);
	}
}

/* Does one job. Sets *ret_stays if gpuwmd wants this loader for another job, now or later. */
static int do_job(struct standby *s, bool *ret_stays)
{
	struct error error = {0};
	bool holds, keeps;
	int r;

	/* With contexts that still work the job begins at once. If the loader did not say so soon,
	 * gpuwmd would give the job to another one. */
	if (s->work.prepare)
		work_phase(&s->work, "starting", 0);
	run_job(s, &error);
	look_for_loss(s, &error);
	holds = !error.code && s->job->kind->check;
	keeps = holds || can_keep(s, &error);
	if (keeps && !holds) {
		/* What belongs to the job goes before the next one. */
		s->job = job_free(s->job);
		s->assigned = false;
		s->work.phase = "waiting";
	}
	r = report_done(&s->work, &error, keeps, ret_stays);
	free(s->work.plan);
	s->work.plan = NULL;
	if (!holds)
		return r;
	if (r == 0 && *ret_stays)
		hold_on(s);
	s->job = job_free(s->job);
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
			s->work.prepare = prepare_leave(s->work.prepare);
			return r == -ECONNRESET || r == -ESTALE ? 0 : r;
		}
		r = do_job(s, &stays);
	}
	s->work.prepare =
		prepare_busy(s->work.prepare) ? prepare_leave(s->work.prepare) : prepare_end(s->work.prepare);
	return r;
}

int standby_run(int sock, const struct roots_service *roots)
{
	struct standby *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->work.phase = "waiting";
	s->work.service = roots;
	s->lookout = lookout_new();
	s->look = roots_look_new(sock, roots);
	r = s->lookout && s->look ? connection_new(sock, &s->work.connection) : -ENOMEM;
	if (r == 0) {
		connection_on_notify(s->work.connection, standby_notified, s, 0);
		r = client_adopt(s->work.connection, &s->work.client);
		if (r == 0)
			r = standby_serve(s);
	}
	job_free(s->job);
	job_free(s->warm);
	lookout_free(s->lookout);
	roots_look_free(s->look);
	if (s->work.client)
		gpuwm_close(s->work.client);
	else
		connection_free(s->work.connection);
	free(s);
	return r;
}
