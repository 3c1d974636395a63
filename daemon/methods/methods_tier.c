/* Versions on tiers: who asks for a move, and what loaders bring of it. */
#include "methods.h"
#include "../clients/audit.h"
#include "../work/loaders/loader.h"
#include "../work/tiers/moves.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* ---- demote, promote, describe ---- */

static int tier_find_own(const struct request *request, const struct reference *ref,
			 struct version **ret_version, struct error *error)
{
	int r = params_open(request->server, error);

	if (r == 0)
		r = access_find_own(request->session, &ref->ref, ret_version, error);
	return r == 0 ? access_retire(request->session, *ret_version, error) : r;
}

static struct tiers_who who_asks(const struct request *request)
{
	return (struct tiers_who){.uid = request->session->peer.uid,
				  .by_operator = request->session->kind == SESSION_ADMIN};
}

static void say_reason(const struct request *request, char reason[MOVE_REASON_BYTES + 1])
{
	const struct peer *peer = &request->session->peer;

	snprintf(reason, MOVE_REASON_BYTES + 1, "asked for by %s (pid %d, uid %u)", peer->command,
		 (int)peer->pid, (unsigned)peer->uid);
}

/* from: the tier on which the version lay. */
static void answer_moves(const struct request *request, const struct version *version, enum tier from)
{
	uint64_t jobs[PARTS_PER_VERSION_MAX];
	const struct moves_result result = {.jobs = {jobs, tiers_jobs(version, jobs)}};

	if (result.jobs.count > 0)
		audit_outcome(request->audit, "%u job%s from %llu on", result.jobs.count,
			      result.jobs.count == 1 ? "" : "s", (unsigned long long)jobs[0]);
	else
		audit_outcome(request->audit, version->move           ? "it waits"
					      : version->tier != from ? "its host copy was there"
								      : "nothing has to move");
	request_tell(request, &result);
}

int method_demote(struct request *request, const void *given, struct error *error)
{
	const struct demote_params *params = given;
	const struct tiers_who who = who_asks(request);
	char reason[MOVE_REASON_BYTES + 1];
	struct version *version;
	enum tier from, to;
	int r = tier_find_own(request, &params->ref, &version, error);

	say_reason(request, reason);
	if (r == 0)
		r = tier_find(params->to, &to);
	if (r < 0)
		return r;
	from = version->tier;
	r = tiers_demote(&request->server->work, version, to, &who, reason, error);
	if (r == 0)
		answer_moves(request, version, from);
	return r;
}

int method_promote(struct request *request, const void *given, struct error *error)
{
	const struct promote_params *params = given;
	const struct tiers_who who = who_asks(request);
	char reason[MOVE_REASON_BYTES + 1];
	struct version *version;
	int r = tier_find_own(request, &params->ref, &version, error);

	say_reason(request, reason);
	if (r == 0)
		r = tiers_promote(&request->server->work, version, &who, reason, error);
	if (r < 0)
		return r;
	if (version_is_resident(version)) {
		/* It lies there, or is to stay there: jobs of a demotion that ends are not those of its promotion. */
		audit_outcome(request->audit, "nothing has to move");
		request_tell(request, &(struct moves_result){0});
	} else {
		answer_moves(request, version, version->tier);
	}
	return 0;
}

/* Each job gets a socket, through which the caller passes the files. Sets ret_socks to the caller's ends. After an error the move ends. */
static int describe_take_files(struct request *request, const struct version *version,
			       int ret_socks[PARTS_PER_VERSION_MAX], uint32_t *ret_count, struct error *error)
{
	struct job_table *table = &request->server->work.jobs;
	uint64_t jobs[PARTS_PER_VERSION_MAX];
	const uint32_t count = tiers_jobs(version, jobs);
	int r = 0;

	*ret_count = 0;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = load_take_files(table, job_find(table, jobs[i]), &ret_socks[*ret_count], error);
		*ret_count += r == 0;
	}
	return r;
}

static void answer_files(struct request *request, const struct version *version,
			 const int socks[PARTS_PER_VERSION_MAX], uint32_t count)
{
	uint64_t jobs[PARTS_PER_VERSION_MAX], positions[PARTS_PER_VERSION_MAX];
	struct moves_result result = {.jobs = {jobs, tiers_jobs(version, jobs)}, .files = {positions, count}};
	struct message_writer w;

	for (uint32_t i = 0; i < count; i++)
		positions[i] = i;
	audit_outcome(request->audit, "%u job%s from %llu on", result.jobs.count,
		      result.jobs.count == 1 ? "" : "s", (unsigned long long)jobs[0]);
	request_result(request, &w);
	record_put(&w, request->form->result, &result);
	request_answer_fds(request, &w, socks, count);
}

int method_describe(struct request *request, const void *given, struct error *error)
{
	const struct describe_params *params = given;
	const struct tiers_who who = who_asks(request);
	const struct description description = {.source = params->source, .by_publisher = !who.by_operator};
	struct work *work = &request->server->work;
	int socks[PARTS_PER_VERSION_MAX];
	struct version *version;
	uint32_t count = 0;
	int r = tier_find_own(request, &params->ref, &version, error);

	if (r == 0)
		r = params_source(request->server->config, params->source, error);
	/* The loader may read files that this user may not. */
	if (r == 0 && !who.by_operator && !params->files)
		r = error_set(
			error, -ENOTSUP, "libgpuwm-client of this release passes the files by itself",
			"who is no operator describes a version by files that it can read: it passes them");
	if (r == 0)
		r = tiers_describe(work, version, &description, &who, error);
	if (r < 0)
		return r;
	if (!params->files) {
		answer_moves(request, version, version->tier);
		return 0;
	}
	r = describe_take_files(request, version, socks, &count, error);
	if (r == 0) {
		answer_files(request, version, socks, count);
		return 0;
	}
	while (count > 0)
		close(socks[--count]);
	moves_stop(work, version, error);
	return r;
}

/* ---- attaching ---- */

int lease_promote(const struct request *request, const struct lease_wanted *wanted, struct version *version,
		  struct lease_later *ret_later, struct error *error)
{
	const struct tiers_who who = who_asks(request);
	const char *model = model_name(version->model), *tier = tier_name(version->tier);
	char detail[TEXT_BYTES_MAX + 1];
	struct error why;
	int r = version_check_sound(version, error);

	if (r < 0)
		return r;
	r = tiers_attach(&request->server->work, version, &who, wanted->promotion, &ret_later->promotion, &why);
	if (r < 0) {
		snprintf(detail, sizeof(detail), "%s", why.detail);
		return error_set(error, r, detail, "%s@%s lies on %s, and is not promoted: %.800s", model,
				 version->tag, tier, why.message);
	}
	ret_later->comes = true;
	return error_set(error, -ETIMEDOUT, ATTACH_LATER,
			 ret_later->promotion ? "%s@%s lies on %s, and its promotion has begun"
					      : "%s@%s lies on %s, and another move of it has to end first",
			 model, version->tag, tier);
}

/* ---- what loaders bring ---- */

/* The last part's answer comes when the version has moved. */
static void wake_moved(struct waiter *waiter, const struct version *changed, bool expired)
{
	const struct work *work = &waiter->request.server->work;
	const struct job *job = job_find(&work->jobs, waiter->job);
	struct error error;

	(void)changed;
	(void)expired;
	if (!waiter->job) /* method_loader_moved goes on */
		return;
	if (job && !job->made && job_is_storing(work, job))
		return;
	if (job && job->made) {
		request_done(&waiter->request);
	} else {
		error_set(&error, -ECANCELED, NULL, "the version has not moved");
		request_refuse(&waiter->request, job && job->error ? job->error : &error);
	}
	waiter_free(waiter);
}

int method_loader_moved(struct request *request, const void *params, struct error *error)
{
	struct server *server = request->server;
	struct waiter *waiter = NULL;
	struct job *job = NULL;
	struct fields f;
	struct part part;
	uint64_t number;
	int r = current_job(request, &job, error);

	(void)params; /* a loader has one part */
	if (r == 0)
		r = waiter_new(request, WAIT_STORED, -1, wake_moved, &waiter, error);
	if (r < 0)
		return r;
	number = job->id;
	part_init(&part);
	fields_of(&f, request->message->body);
	if (part_segments_read(&f, request->packet, &part) < 0) {
		*error = f.error;
		r = error->code;
	} else {
		r = tiers_arrived(&server->work, job, &part, error);
	}
	part_drop(server, &part);
	if (r < 0) {
		waiter_free(waiter);
		return r;
	}
	waiter->job = number;
	wake_moved(waiter, NULL, false);
	return 0;
}
