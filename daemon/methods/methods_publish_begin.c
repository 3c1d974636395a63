/* publish_begin: who may, room for the part, and the socket to its checker. */
#include "methods.h"
#include "../work/versions/claims.h"
#include "../work/tiers/tiers.h"
#include "../../base/clock.h"
#include "../../service/peers.h"
#include "../work/versions/publishers.h"
#include "../work/loaders/loader.h"
#include "../work/tiers/room.h"
#include "../work/jobs/job_check.h"
#include "../work/jobs/job_load.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A begin, as it is kept while it waits for room. */
struct begin {
	struct ref name;
	char alias[NAME_BYTES_MAX + 1];
	struct version_id join;
	struct joiners joiners;
	bool give;
	bool evicts; /* versions were demoted for it */
	bool awaits_quota; /* it waits, as long as its client asked for, until versions of the same user are freed */
	int64_t wait_ms; /* what its client asked for */
	char fingerprint[FINGERPRINT_TEXT + 1]; /* "": none was told */
	struct publish_request request;
};

static struct version_cache cache_of(const struct cache_params *params)
{
	struct version_cache cache = {
		.cached = true, .ttl_ms = params->ttl_ms, .keep_last = (uint32_t)params->keep_last};

	if (params->companion_of)
		cache.companion_of = *params->companion_of;
	return cache;
}

static int begin_of(struct request *request, const struct publish_begin_params *params, struct begin *begin,
		    struct error *error)
{
	const bool nameless = !params->name.ref.model[0];

	begin->name = params->name.ref;
	if (nameless)
		nameless_model(request->session->peer.uid, begin->name.model);
	snprintf(begin->alias, sizeof(begin->alias), "%s", params->alias ? params->alias : "");
	begin->request = (struct publish_request){
		.model = nameless ? NULL : begin->name.model,
		.tag = nameless ? NULL : begin->name.name,
		.alias = begin->alias,
		.rank = params->rank < UINT32_MAX ? (uint32_t)params->rank : UINT32_MAX,
		.world = params->world < UINT32_MAX ? (uint32_t)params->world : UINT32_MAX,
		.bytes = params->bytes,
		.publisher = request->session,
		.uid = request->session->peer.uid,
		.by_operator = request->session->kind == SESSION_ADMIN,
		.heard_ms = &request->session->client->heard_ms,
		.silence_ms = request->server->config->publish_silence_ms,
		.segments = params->segments,
	};
	begin->wait_ms = params->wait_ms;
	snprintf(begin->fingerprint, sizeof(begin->fingerprint), "%s",
		 params->fingerprint ? params->fingerprint : "");
	if (params->publish) {
		begin->join = *params->publish;
		begin->request.join = &begin->join;
	}
	if (params->join && params->join->uids.count + params->join->gids.count > 0) {
		joiners_set(&begin->joiners, params->join);
		begin->request.joiners = &begin->joiners;
	}
	if (params->cache)
		begin->request.cache = cache_of(params->cache);
	begin->give = params->give;
	return params_device(request->server, params->device, &begin->request.device, error);
}

/* What publishers get with the answer. */
struct begun {
	int fds[2];
	size_t fd_count;
	bool given; /* a segment and an index; else a checker */
};

/* Takes over the descriptors. */
static void answer_begun(const struct request *request, const struct version *version,
			 const struct begun *begun)
{
	static const uint64_t first = 0, second = 1;
	const uint64_t alive_ms = request->server->config->publish_silence_ms / PUBLISH_SIGNS;
	struct publish_begin_result result = {.publish = &version->publish, .version = &version->id};
	char name[REF_BYTES_MAX + 1];
	struct message_writer w;

	if (version_is_nameless(version)) {
		snprintf(name, sizeof(name), "%s@%s", model_name(version->model), version->tag);
		result.name = name;
	}
	if (begun->fd_count > 0)
		result.alive_ms = &alive_ms;
	if (begun->given) {
		result.segment = &first;
		result.index = &second;
	} else if (begun->fd_count > 0) {
		result.checker = &first;
	}
	request_result(request, &w);
	record_put(&w, request->form->result, &result);
	request_answer_fds(request, &w, begun->fds, begun->fd_count);
}

/* What comes from files can come from there again, and what comes from a node from any that has the same content. */
static void describe_by_load(struct version *version, const struct load_wish *wish, const char *fingerprint)
{
	const bool is_peers = peer_source(wish->source) && peer_fingerprint(fingerprint);

	if (!version->description && (wish->source[0] == '/' || is_peers))
		version->description =
			description_new(&(struct description){.source = wish->source,
							      .choice = wish->choice,
							      .fingerprint = is_peers ? fingerprint : NULL});
}

/* A load: the process that makes it checks it too. */
static int begin_as_loader(struct request *request, struct begin *begin, struct error *error)
{
	struct server *server = request->server;
	struct job *job =
		request->session->client->loader ? loader_job(request->session->client->loader) : NULL;
	const struct load_job *load = load_job_of(job);
	struct publish_part *part = NULL;
	struct version *version;
	int r;

	if (!load || strcmp(job->model, begin->name.model) != 0 || strcmp(job->tag, begin->name.name) != 0)
		return error_set(error, -EACCES, NULL, "this loader has no job to make %s@%s",
				 begin->name.model, begin->name.name);
	loader_has_begun(request->session->client->loader);
	if (job->dry_run)
		return error_set(error, -EINVAL, "use gpuwm-loader and gpuwmd of one release",
				 "a dry run makes no version");
	begin->request.publisher = job;
	begin->request.uid = job->uid;
	begin->request.by_operator = !job->takes_turns;
	begin->request.groups = load->groups;
	begin->request.group_count = load->group_count;
	begin->request.heard_ms = NULL;
	begin->request.expect = load->params->expect;
	begin->request.retire_old = load->params->retire_old;
	if (load->params->wish.companion_of)
		begin->request.cache =
			cache_of(&(struct cache_params){.companion_of = load->params->wish.companion_of});
	if (!job->takes_turns && !begin->request.join) {
		r = publish_check_operators(server->ledger.quota, &begin->request, error);
		if (r < 0)
			return r;
	}
	r = publish_begin(server->ledger.publishes, server->ledger.registry,
			  job->takes_turns ? server->ledger.quota : NULL, &begin->request, &part, error);
	if (r < 0)
		return r;
	version = part->publish->version;
	describe_by_load(version, &load->params->wish, begin->fingerprint);
	job->version = version->id;
	job_watch(job); /* it may have waited for room until now */
	answer_begun(request, version, &(struct begun){0});
	return 0;
}

static int check_job(struct request *request, const struct begin *begin, int sock, struct job **ret_job,
		     struct error *error)
{
	struct server *server = request->server;
	struct job *job = NULL;
	int r = job_new(&server->work,
			&(struct job_wish){JOB_CHECK, begin->name.model, begin->name.name,
					   request->session->peer.uid, begin->request.by_operator},
			&job, error);

	if (r < 0) {
		close(sock);
		return r;
	}
	job->publisher_sock = sock;
	job->by_operator = begin->request.by_operator;
	job->is_routine = !begin->request.model;
	job->rank = begin->request.rank;
	job->world = begin->request.world;
	check_job_of(job)->bytes = begin->request.bytes;
	check_job_of(job)->is_one_of_many = !begin->request.model || begin->request.cache.cached;
	r = job_add_device(job, begin->request.device);
	r = r < 0 ? error_set(error, r, NULL, "gpuwmd is out of memory")
		  : budget_check_with_context(begin->request.device, begin->request.bytes, error);
	if (r == 0)
		r = hand_in_await(&server->work, job, error);
	if (r < 0) {
		job_drop(&server->work.jobs, job);
		return r;
	}
	job_awaits_publisher(&server->work.jobs, job);
	*ret_job = job;
	return 0;
}

/* Whoever began it may have gone when the alias is to be moved, and the rules may be others. */
static int begin_with_groups(const struct request *request, struct begin *begin, struct publish_part **ret_part,
			     struct error *error)
{
	const struct server *server = request->server;
	gid_t *groups = NULL;
	size_t count = 0;
	int r;

	if (begin->alias[0] && !begin->request.join) {
		groups = access_groups(request->session, &count);
		if (!groups)
			return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	begin->request.groups = groups;
	begin->request.group_count = count;
	r = publish_begin(server->ledger.publishes, server->ledger.registry, server->ledger.quota,
			  &begin->request, ret_part, error);
	begin->request.groups = NULL;
	begin->request.group_count = 0;
	free(groups);
	return r;
}

/* Takes the checker's end. The job comes first: it is what can be undone without a trace in the registry. */
static int begin_with_checker(struct request *request, struct begin *begin, int checker_sock,
			      struct version **ret_version, struct error *error)
{
	struct server *server = request->server;
	struct publish_part *part = NULL;
	struct publish *publish;
	struct job *job = NULL;
	int r = check_job(request, begin, checker_sock, &job, error);

	if (r < 0)
		return r;
	r = begin_with_groups(request, begin, &part, error);
	if (r < 0) {
		job_drop(&server->work.jobs, job);
		return r;
	}
	publish = part->publish;
	if (!begin->request.join)
		claims_begun(&server->work, request->session, &begin->name, &publish->id);
	part->checker = job;
	check_job_of(job)->publish = publish->id;
	job->version = publish->version->id;
	snprintf(job->tag, sizeof(job->tag), "%s",
		 publish->version->tag); /* that of a nameless version is new */
	*ret_version = publish->version;
	return 0;
}

static int begin_checked(struct request *request, struct begin *begin, struct version **ret_version,
			 struct begun *ret, struct error *error)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set(error, -errno, NULL, "gpuwmd could not make a socket to a checker: %s",
				 strerror(errno));
	r = begin_with_checker(request, begin, pair[1], ret_version, error);
	if (r < 0)
		close(pair[0]);
	else
		*ret = (struct begun){.fds = {pair[0]}, .fd_count = 1};
	return r;
}

static int begin_given(struct request *request, struct begin *begin, struct version **ret_version,
		       struct begun *ret, struct error *error)
{
	struct publish_part *part = NULL;
	struct given given, copies;
	int r;

	if (begin->request.device->kind->is_gpu)
		return error_set(error, -EINVAL, "make GPU memory, and hand it to the checker",
				 "gpuwmd gives memory of host only, not of %s", begin->request.device->id);
	r = given_make(&given, error);
	if (r < 0)
		return r;
	*ret = (struct begun){.fds = {given.segment, given.index}, .fd_count = 2, .given = true};
	r = request_copy_fds(ret->fds, ret->fd_count, error);
	if (r < 0) {
		given_close(&given);
		return r;
	}
	copies = (struct given){ret->fds[0], ret->fds[1]};
	r = begin_with_groups(request, begin, &part, error);
	if (r < 0) {
		given_close(&copies);
		given_close(&given);
		return r;
	}
	part->given = given;
	*ret_version = part->publish->version;
	return 0;
}

static int begin_as_publisher(struct request *request, struct begin *begin, struct error *error)
{
	struct session *session = request->session;
	struct model *model = registry_model(request->server->ledger.registry, begin->name.model);
	struct version *version = NULL;
	struct begun begun = {0};
	int r = 0;

	/* Who joins was named by one who may, or is that user. */
	if (!begin->request.join) {
		r = access_publish(session, begin->name.model, error);
		/* The owner's uid may publish without the right to move aliases: where an operator made the model. A
		 * publish with an alias asks for both. */
		if (r == 0 && begin->alias[0] && model && model_owner(model).known)
			r = access_swap(session, model, error);
		if (r == 0)
			r = claims_check(&request->server->work, session, &begin->name, error);
	}
	if (r == 0)
		r = begin->give ? begin_given(request, begin, &version, &begun, error)
				: begin_checked(request, begin, &version, &begun, error);
	if (r < 0)
		return r;
	/* The request may have waited for room, and its publisher sends no signs of life before it has an answer. */
	session->client->heard_ms = clock_steady_ms();
	answer_begun(request, version, &begun);
	silence_watch(request->server->work.silence);
	loader_pool_turn(request->server->work.loaders);
	return 0;
}

static int begin_now(struct request *request, struct begin *begin, struct error *error)
{
	const struct version_id *join = begin->request.join;
	const struct publish *publish = join ? publish_find(request->server->ledger.publishes, join) : NULL;
	int r = params_open(request->server, error);

	/* Who may not join gets the same answer as where there is no such publish. */
	if (r == 0 && join && !(publish && may_take_part(request->session, publish->version)))
		r = publish_unknown(join, error);
	if (r == 0)
		r = device_check_there(begin->request.device, error);
	if (r < 0)
		return r;
	if (request->session->kind == SESSION_LOADER)
		return begin_as_loader(request, begin, error);
	return begin_as_publisher(request, begin, error);
}

/* Returns whether a begin that a quota refused would get on when versions of its user are freed. */
static bool quota_will_do(const struct request *request, const struct begin *begin)
{
	const struct ledger *ledger = &request->server->ledger;
	const struct publish *joined =
		begin->request.join ? publish_find(ledger->publishes, begin->request.join) : NULL;
	uint64_t needs[QUOTA_KINDS] = {
		[QUOTA_FDS] = part_fds(begin->request.segments),
		[QUOTA_BYTES] = begin->request.bytes,
	};

	if (joined)
		return quota_comes(ledger->quota, joined->version->owner, needs);
	needs[QUOTA_PUBLISHES] = 1;
	needs[begin->request.model ? QUOTA_VERSIONS : QUOTA_NAMELESS] = 1;
	return quota_comes(ledger->quota, begin->request.uid, needs);
}

/* What a begin that ended with this code waits for. gpuwmd answers a release before it frees the version, which counts until
 * then: a user who is at the limit of versions without a name, and releases one, gets another one. */
static enum room_wait wait_of(const struct request *request, struct begin *begin, int code, struct error *error)
{
	const struct tiers_need need = {
		.device = begin->request.device,
		.bytes = begin->request.bytes,
		.loader = request->session->client->loader,
		/* The owner of the version is who asked: an operator for a load. */
		.who = {.uid = begin->request.uid, .by_operator = begin->request.by_operator},
	};
	struct work *work = &request->server->work;
	enum room_wait wait;

	if (code == -EDQUOT && !begin->request.model && versions_are_being_freed(work, begin->name.model))
		return ROOM_FREED;
	if (code == -EDQUOT && begin->wait_ms != 0 && quota_will_do(request, begin))
		return ROOM_QUOTA;
	if (code != -ENOSPC)
		return ROOM_NEVER;
	wait = room_wait(work, need.device, need.bytes, 0, need.loader);
	if (wait != ROOM_NEVER || evictions_make_room(work, &need, error) < 0)
		return wait;
	begin->evicts = true;
	return ROOM_EVICTED;
}

static void explain_room(const struct request *request, const struct begin *begin, struct error *error)
{
	room_explain(&request->server->work, begin->request.device, begin->request.bytes,
		     begin->request.by_operator, error);
}

static void wake_for_room(struct waiter *waiter, const struct version *changed, bool expired)
{
	struct begin *begin = waiter->asked;
	struct error error;
	int r = begin_now(&waiter->request, begin, &error);
	enum room_wait wait = r < 0 && !expired ? wait_of(&waiter->request, begin, r, &error) : ROOM_NEVER;

	(void)changed;
	if (wait == ROOM_CONTEXTS || wait == ROOM_EVICTED ||
	    (wait == ROOM_FREED && (waiter->timed || begin->evicts || begin->awaits_quota)) ||
	    (wait == ROOM_QUOTA && begin->awaits_quota))
		return;
	if (r == -ENOSPC)
		explain_room(&waiter->request, begin, &error);
	if (r < 0)
		request_refuse(&waiter->request, &error);
	waiter_free(waiter);
}

/* The scrub gives way to it, others end. */
static int wait_for_room(struct request *request, const struct begin *given, int64_t wait_ms,
			 struct error *error)
{
	struct begin *begin = malloc(sizeof(*begin));
	struct waiter *waiter;
	int r;

	if (!begin)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = waiter_new(request, WAIT_ROOM, wait_ms, wake_for_room, &waiter, error);
	if (r < 0) {
		free(begin);
		return r;
	}
	*begin = *given;
	begin->request.model = given->request.model ? begin->name.model : NULL;
	begin->request.tag = given->request.tag ? begin->name.name : NULL;
	begin->request.alias = begin->alias;
	begin->request.join = given->request.join ? &begin->join : NULL;
	begin->request.joiners = given->request.joiners ? &begin->joiners : NULL;
	snprintf(waiter->device, sizeof(waiter->device), "%s", begin->request.device->id);
	waiter->asked = begin;
	loader_pool_turn(request->server->work.loaders);
	return 0;
}

/* The operator is told what takes long. */
static void note_wait(const struct request *request, const struct begin *begin, const char *what)
{
	struct job *job =
		request->session->client->loader ? loader_job(request->session->client->loader) : NULL;
	char note[TEXT_BYTES_MAX + 1];

	snprintf(note, sizeof(note), "waits for room on %s: %s in the way", begin->request.device->id, what);
	if (job)
		job_remark(&request->server->work, job, note);
}

int method_publish_begin(struct request *request, const void *params, struct error *error)
{
	struct begin begin;
	int r = begin_of(request, params, &begin, error);

	if (r == 0)
		r = begin_now(request, &begin, error);
	if (r >= 0)
		return r;
	switch (wait_of(request, &begin, r, error)) {
	case ROOM_CONTEXTS:
		note_wait(request, &begin, "CUDA contexts of other jobs are");
		return wait_for_room(request, &begin, -1, error);
	case ROOM_FREED:
		note_wait(request, &begin, "what is being freed is");
		return wait_for_room(request, &begin, FREED_WAIT_MS, error);
	case ROOM_EVICTED:
		note_wait(request, &begin, "versions that are demoted are");
		return wait_for_room(request, &begin, -1, error);
	case ROOM_QUOTA:
		begin.awaits_quota = true;
		return wait_for_room(request, &begin, begin.wait_ms, error);
	case ROOM_NEVER:
		break;
	}
	if (r == -ENOSPC)
		explain_room(request, &begin, error);
	return r;
}
