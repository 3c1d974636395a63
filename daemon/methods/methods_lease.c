#include "methods.h"
#include "../../base/clock.h"
#include "../base/metrics.h"
#include "../base/probe.h"
#include "../base/pids.h"
#include "../restart/keeping.h"
#include "../work/versions/leases.h"
#include "../work/versions/unparks.h"
#include "../work/tiers/moves.h"
#include "../work/versions/versions.h"
#include "../clients/waiter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* By what else, its form refuses. */
static bool is_copied(const char *transport)
{
	return transport && strcmp(transport, TRANSPORT_CUDA_IPC) == 0;
}

/* ---- which replica ---- */

static void list_places(const struct version *version, uint64_t rank, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "it is on");
	const char *comma = "";

	for (uint32_t i = 0; i < version->replica_count && used < size; i++) {
		if (version->replicas[i].rank != rank)
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s %s", comma,
					 version->replicas[i].device->id);
		comma = ",";
	}
}

static int lease_find_replica(const struct version *version, const struct lease_wanted *wanted, uint32_t *ret,
			      struct error *error)
{
	const char *model = model_name(version->model);
	char places[TEXT_BYTES_MAX + 1];
	uint32_t matches = 0;

	if (wanted->rank >= version->world)
		return error_set(error, -EINVAL, NULL, "%s@%s has no rank %llu: its world is %u", model,
				 version->tag, (unsigned long long)wanted->rank, version->world);
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];

		if (replica->rank != wanted->rank ||
		    (wanted->device[0] && strcmp(replica->device->id, wanted->device) != 0))
			continue;
		*ret = i;
		matches++;
	}
	if (matches == 1)
		return 0;
	list_places(version, wanted->rank, places, sizeof(places));
	if (matches == 0)
		return error_set(error, -ENODEV, places, "%s@%s is not on %s", model, version->tag,
				 wanted->device);
	return error_set(error, -ENODEV, places, "%s@%s is on several devices, and none is named", model,
			 version->tag);
}

int lease_not_ready(const struct version *version, struct lease_later *ret_later, struct error *error)
{
	const char *model = model_name(version->model), *state = version_state_name(version->state);

	if (version->state == VERSION_FAILED)
		return error_set(error, version->error.code, version->error.detail, "%s@%s failed: %s", model,
				 version->tag, version->error.message);
	if (version->state == VERSION_RETIRING)
		return error_set(error, -ENOENT, "it gives no new leases", "%s@%s is retiring", model,
				 version->tag);
	ret_later->comes = true;
	return error_set(error, -ETIMEDOUT, ATTACH_LATER, "%s@%s is not ready: %s", model, version->tag, state);
}

/* The owner is checked only once the version is ready: a version that is not ready may fail, and the wanted owner may
 * then build it anew. Whether the version is sound is asked where the request gets something: by lease_grant, or by lease_promote. */
static int lease_check_wanted(const struct request *request, const struct lease_wanted *wanted,
			      struct lease_found *ret, struct lease_later *ret_later, struct error *error)
{
	struct version *version = ret->version;
	const bool look = wanted->look && version->state == VERSION_RETIRING && !version->freeing;
	int r;

	if (version->state != VERSION_READY && !look)
		return lease_not_ready(version, ret_later, error);
	r = owner_check(&wanted->owner, version, error);
	if (r == 0)
		r = lease_find_replica(version, wanted, &ret->replica, error);
	if (r < 0 || wanted->look || wanted->room > 0 || version_is_resident(version))
		return r;
	return lease_promote(request, wanted, version, ret_later, error);
}

/* ---- the answer ---- */

/* A request that waited has no packet any more. Its time is the wait for the version. */
void lease_count_attach(const struct request *request, const struct version *version)
{
	struct metrics *metrics = request->server->net.metrics;
	const struct peer *peer = &request->session->peer;
	const uint64_t took_ns = clock_steady_ns() - request->received_ns;

	metrics_count(metrics, METRIC_ATTACHES, 1);
	histogram_add(request->packet ? &metrics->attach : &metrics->attach_waited, took_ns);
	PROBE5(attach, peer->uid, peer->pid, model_name(version->model), version->tag, took_ns);
}

struct get_handles_result lease_result(const struct version *version, uint32_t replica, uint64_t lease,
				       uint64_t generation)
{
	const struct replica *part = &version->replicas[replica];

	return (struct get_handles_result){.lease = lease,
					   .version = &version->id,
					   .model = model_name(version->model),
					   .tag = version->tag,
					   .device = part->device->id,
					   .rank = part->rank,
					   .world = version->world,
					   .generation = generation};
}

void lease_tell_fds(const struct request *request, const struct lease_found *found, uint64_t lease)
{
	const struct version *version = found->version;
	struct get_handles_result result = lease_result(version, found->replica, lease, found->generation);
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	struct part part;
	size_t fd_count;

	result.room = lease_room_bytes(lease_by_id(request->server->ledger.registry, lease));
	request_result(request, &w);
	record_put(&w, form_get_handles.result, &result);
	replica_list(&version->replicas[found->replica], &part);
	fd_count = part_write(&w, &part, fds);
	request_answer_lease(request, &w, fds, fd_count, lease);
}

struct lease_holder lease_holder_of(const struct request *request)
{
	struct session *session = request->session;
	struct peer *peer = &session->peer;

	if (!peer->started)
		peer->started = pid_started(peer->pid);
	return (struct lease_holder){
		.holder = session,
		.leases = &session->client->leases,
		.quota = request->server->ledger.quota,
		.uid = peer->uid,
		.peer = peer,
	};
}

/* The lease comes before the reply: if the session dies between, goodbye ends it. */
static int lease_shared(const struct request *request, const struct lease_found *found,
			const struct lease_wanted *wanted, struct error *error)
{
	struct server *server = request->server;
	const struct lease_holder holder = lease_holder_of(request);
	struct lease *lease;
	int r;

	if (wanted->look) /* as freely as a lease of before a restart */
		r = lease_resume(server->ledger.registry, found->version, found->replica, false, &holder,
				 &lease, error);
	else
		r = lease_grant(server->ledger.registry, found->version, found->replica, &holder, &lease,
				error);
	if (r < 0)
		return r;
	moves_stop_demotion(&server->work, found->version, "an attach");
	lease_tell_fds(request, found, lease->id);
	lease_count_attach(request, found->version);
	return 0;
}

/* ---- awake ---- */

struct lease *lease_own(const struct request *request, uint64_t id, struct error *error)
{
	struct lease *lease = lease_find(request->server->ledger.registry, id, request->session);

	if (!lease && revoked_find(&request->server->work, id))
		error_set(error, -ESTALE, "let it go", "lease %llu was revoked by an operator",
			  (unsigned long long)id);
	else if (!lease)
		error_set(error, -ENOENT, "a lease is parked on the connection that took it",
			  "lease %llu is not this connection's", (unsigned long long)id);
	return lease;
}

/* wanted->lease may have ended while the request waited. */
int lease_awake(const struct request *request, const struct lease_wanted *wanted, struct lease_later *ret_later,
		struct error *error)
{
	struct work *work = &request->server->work;
	struct lease *lease = lease_own(request, wanted->lease, error);
	struct lease_found found;
	int r;

	*ret_later = (struct lease_later){.lease = wanted->lease, .generation = wanted->generation};
	if (!lease)
		return error->code;
	r = unparks_ask(work, lease, wanted->room, wanted->wait_ms, &ret_later->comes, error);
	if (r < 0)
		return r;
	leases_unpark(work, lease);
	found = (struct lease_found){lease->version, lease->replica, wanted->generation};
	lease_tell_fds(request, &found, lease->id);
	return 0;
}

/* A new lease with room is parked until it has both the version and the room. */
static int lease_with_room(const struct request *request, const struct lease_found *found,
			   const struct lease_wanted *wanted, struct lease_later *ret_later,
			   struct error *error)
{
	struct server *server = request->server;
	const struct lease_holder holder = lease_holder_of(request);
	struct lease_wanted awake = *wanted;
	struct lease *lease;
	int r = lease_resume(server->ledger.registry, found->version, found->replica, true, &holder, &lease,
			     error);

	if (r < 0)
		return r;
	lease->parked_as = 0; /* its holder does not know it yet, and would not know it as a parked one */
	awake.lease = lease->id;
	awake.generation = found->generation;
	r = lease_awake(request, &awake, ret_later, error);
	if (r == 0)
		lease_count_attach(request, found->version);
	return r;
}

/* An attach with room has come to nothing. */
static void lease_give_up(const struct request *request, uint64_t id)
{
	struct server *server = request->server;
	struct lease *lease = lease_find(server->ledger.registry, id, request->session);

	if (lease)
		versions_free_unused(&server->work, leases_end(&server->work, lease));
}

int lease_answer(const struct request *request, const struct lease_wanted *wanted,
		 struct lease_later *ret_later, struct error *error)
{
	struct session *session = request->session;
	struct lease_found found;
	int r = params_open(request->server, error);

	*ret_later = (struct lease_later){.lease = wanted->lease};
	if (r < 0)
		return r;
	if (wanted->lease)
		return lease_awake(request, wanted, ret_later, error);
	r = access_find(session, wanted->ref, &found.version, &found.generation, error);
	if (r < 0) {
		ret_later->comes = !wanted->ref->has_id;
		return r;
	}
	r = access_attach(session, found.version->model, error);
	if (r == 0)
		r = lease_check_wanted(request, wanted, &found, ret_later, error);
	if (r < 0)
		return r;
	if (wanted->room > 0)
		return lease_with_room(request, &found, wanted, ret_later, error);
	return wanted->copied ? lease_copied(request, &found, error)
			      : lease_shared(request, &found, wanted, error);
}

/* ---- waiting ---- */

/* A lease that is there waits for its version, whatever its alias names meanwhile. */
static int waiter_enter(struct waiter *waiter, const struct ref *ref)
{
	const struct registry *registry = waiter->request.session->client->clients->ledger->registry;
	const struct lease *lease = waiter->job ? lease_by_id(registry, waiter->job) : NULL;

	waiter_name_leave(waiter);
	waiter->ref = *ref;
	if (lease)
		waiter->ref = (struct ref){.has_id = true, .id = lease->version->id};
	return waiter_name_enter(waiter);
}

static int64_t waiter_time_left(const struct waiter *waiter, bool expired)
{
	if (!waiter->timed)
		return -1;
	return expired ? 0 : (int64_t)uv_timer_get_due_in(&waiter->timer);
}

void lease_wake(struct waiter *waiter, bool expired, lease_ask_fn *ask)
{
	const struct lease_wanted wanted = {.ref = &waiter->ref,
					    .device = waiter->device,
					    .rank = waiter->rank,
					    .look = waiter->look,
					    .owner = waiter->owner,
					    .promotion = waiter->promotion,
					    .copied = waiter->copied,
					    .lease = waiter->job,
					    .generation = waiter->generation,
					    .wait_ms = waiter_time_left(waiter, expired),
					    .room = waiter->room};
	struct error error, reason;
	struct lease_later later;
	int r = ask(&waiter->request, &wanted, &later, &error);

	waiter->promotion = later.promotion;
	if (r < 0 && later.comes && later.lease != waiter->job) {
		waiter->job = later.lease;
		waiter->generation = later.generation;
		if (waiter_enter(waiter, wanted.ref) < 0)
			later.comes = false;
	}
	if (r < 0 && later.comes && !expired)
		return;
	if (r < 0 && later.comes) {
		reason = error;
		error_set(&error, -ETIMEDOUT, reason.detail, "time ran out: %s", reason.message);
	}
	if (r < 0)
		request_refuse(&waiter->request, &error);
	if (r < 0 && ask == lease_answer && later.lease)
		lease_give_up(&waiter->request, later.lease);
	waiter_free(waiter);
}

int lease_wait(const struct request *request, enum wait_kind kind, const struct lease_wanted *wanted,
	       int64_t wait_ms, waiter_wake_fn *wake, struct error *error)
{
	struct waiter *waiter;
	int r = waiter_new(request, kind, wait_ms, wake, &waiter, error);

	if (r < 0)
		return r;
	waiter->rank = (uint32_t)wanted->rank;
	waiter->look = wanted->look;
	waiter->copied = wanted->copied;
	waiter->owner = wanted->owner;
	waiter->promotion = wanted->promotion;
	waiter->job = wanted->lease;
	waiter->room = wanted->room;
	waiter->generation = wanted->generation;
	snprintf(waiter->device, sizeof(waiter->device), "%s", wanted->device);
	if (waiter_enter(waiter, wanted->ref) == 0)
		return 0;
	waiter_free(waiter);
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

static void lease_wake_ready(struct waiter *waiter, const struct version *changed, bool expired)
{
	(void)changed;
	lease_wake(waiter, expired, lease_answer);
}

int method_get_handles(struct request *request, const void *given, struct error *error)
{
	const struct get_handles_params *params = given;
	struct lease_wanted wanted = {.ref = &params->ref.ref,
				      .device = params->device ? params->device : "",
				      .rank = params->rank,
				      .look = params->look,
				      .owner = params->owner,
				      .copied = is_copied(params->transport),
				      .wait_ms = params->wait_ms,
				      .room = params->room};
	char remedy[REMEDY_BYTES];
	struct lease_later later;
	int r;

	if (wanted.look && request->session->kind != SESSION_ADMIN)
		return error_set(error, -EACCES, remedy_operator(&request->server->clients, remedy),
				 "to look at what gives no leases is for operators");
	if (wanted.look && wanted.copied)
		return error_set(error, -EINVAL, "look by descriptors, without \"transport\"",
				 "a version that gives no leases gets no copy");
	r = lease_answer(request, &wanted, &later, error);
	wanted.promotion = later.promotion;
	wanted.lease = later.lease;
	wanted.generation = later.generation;
	if (r < 0 && later.comes && params->wait_ms != 0 && wanted.rank < PARTS_PER_VERSION_MAX) {
		r = lease_wait(request, WAIT_READY, &wanted, params->wait_ms, lease_wake_ready, error);
		if (r == 0)
			return 0;
	}
	if (r < 0 && later.lease)
		lease_give_up(request, later.lease);
	return r;
}

/* Neither waits for other room any more. */
static int lease_hand_room(struct work *work, struct lease *from, struct lease *to, struct error *error)
{
	unparks_end(work, from, false);
	unparks_end(work, to, false);
	return lease_room_move(from, to, error);
}

int method_release(struct request *request, const void *given, struct error *error)
{
	const struct release_params *params = given;
	struct server *server = request->server;
	struct lease *lease = lease_find(server->ledger.registry, params->lease, request->session);
	struct lease *to;
	int r = 0;

	if (!lease && revoked_release(&server->work, request->session, params->lease)) {
		metrics_count(server->net.metrics, METRIC_RELEASES, 1);
		request_done(request);
		return 0;
	}
	if (!lease)
		return error_set(error, -ENOENT, "a lease is given back on the connection that took it",
				 "lease %llu is not this connection's", (unsigned long long)params->lease);
	if (params->room_to) {
		to = lease_own(request, params->room_to, error);
		r = to ? lease_hand_room(&server->work, lease, to, error) : error->code;
	}
	if (r < 0)
		return r;
	versions_free_unused(&server->work, leases_end(&server->work, lease));
	metrics_count(server->net.metrics, METRIC_RELEASES, 1);
	request_done(request);
	return 0;
}

int method_announce(struct request *request, const void *given, struct error *error)
{
	const struct announce_params *params = given;
	struct server *server = request->server;
	struct lease *lease = lease_find(server->ledger.registry, params->lease, request->session);
	int r;

	if (!lease)
		return error_set(error, -ENOENT,
				 "an address is announced on the connection that took the lease",
				 "lease %llu is not this connection's", (unsigned long long)params->lease);
	r = leases_announce(&server->work, lease, params->address, error);
	if (r == 0)
		request_done(request);
	return r;
}

/* ---- leases of before a restart ---- */

/* A client may name any number. Of those that no gpuwmd has given none is resumed. */
static int check_resumed(const struct registry *registry, const struct version *version, uid_t uid,
			 const struct resume_lease *asked, struct error *error)
{
	const uint64_t id = asked->lease;
	const char *model = model_name(version->model);

	if (version_lease_revoked(version, uid, id))
		return error_set(error, -ESTALE, "attach again, if the version gives leases",
				 "lease %llu of %s@%s was revoked by an operator", (unsigned long long)id,
				 model, version->tag);
	if (version->forced)
		return error_set(error, -ESTALE, "attach to another version",
				 "the leases of %s@%s were revoked: an operator retired it by force", model,
				 version->tag);
	if (id <= version->stale_leases && id > 0 && !asked->parked) /* who maps nothing takes what there is */
		return error_set(error, -ESTALE, "attach again",
				 "%s@%s was demoted after lease %llu had ended: its memory is another one now",
				 model, version->tag, (unsigned long long)id);
	if (id == 0 || id > lease_last(registry))
		return error_set(error, -ENOENT, "attach again, if the version gives leases",
				 "no lease has had the number %llu", (unsigned long long)id);
	return 0;
}

/* Finds the version of a lease that may be resumed. Fails with -ESTALE, among others, if the lease has ended for good. */
static int find_resumed(const struct request *request, const struct lease_wanted *wanted,
			const struct resume_lease *asked, struct version **ret_version, struct error *error)
{
	struct session *session = request->session;
	uint64_t generation;
	int r;

	if (wanted->copied) /* the holder of a copy ends with its connection to gpuwmd, and so does the copy */
		return error_set(
			error, -ESTALE, "attach again: gpuwmd makes a new copy",
			"the copy by cuda_ipc has ended with the gpuwmd, or the connection, that it was leased on");
	r = access_find(session, wanted->ref, ret_version, &generation, error);
	if (r == 0)
		r = access_attach(session, (*ret_version)->model, error);
	if (r < 0)
		return r;
	return check_resumed(request->server->ledger.registry, *ret_version, session->peer.uid, asked, error);
}

/* Anybody may name any lease with any room. What gpuwmd has noted of this process counts beyond budget and quota; more counts if there is
 * room for it, and else not at all. */
static int resume_room(const struct request *request, struct lease *lease, const struct resume_lease *asked,
		       struct error *error)
{
	const struct server *server = request->server;
	const struct peer *peer = &request->session->peer;
	const uint64_t noted = keeping_take_room(server->keeping, asked->lease, peer->pid, peer->uid);
	const uid_t *payer = lease_payer(lease);
	int r = lease_room_adopt(lease, asked->room < noted ? asked->room : noted, server->ledger.quota, payer,
				 error);

	if (r == 0 && asked->room > noted)
		r = lease_room_set(lease, asked->room, server->ledger.quota, payer, error);
	return r == -ENOSPC || r == -EDQUOT ? 0 : r;
}

static int lease_resume_one(const struct request *request, const struct lease_wanted *wanted,
			    const struct resume_lease *asked, bool *ret_revoked, struct lease **ret,
			    struct error *error)
{
	struct server *server = request->server;
	const struct lease_holder holder = lease_holder_of(request);
	struct version *version;
	uint32_t replica;
	struct lease_later later;
	int r = find_resumed(request, wanted, asked, &version, error);

	*ret_revoked = r == -ESTALE;
	if (r < 0)
		return r;
	if (version->state != VERSION_READY &&
	    (version->state != VERSION_RETIRING || keeping_grace_ms(server->keeping) == 0))
		return lease_not_ready(version, &later, error);
	r = lease_find_replica(version, wanted, &replica, error);
	if (r == 0)
		r = lease_resume(server->ledger.registry, version, replica, asked->parked, &holder, ret, error);
	if (r == 0) {
		r = resume_room(request, *ret, asked, error);
		if (r < 0)
			leases_end(&server->work, *ret);
	}
	if (r == 0 && !asked->parked)
		moves_stop_demotion(&server->work, version, "a process that takes its lease again");
	return r;
}

static void count_resumed(const struct request *request, const struct error *error)
{
	struct metrics *metrics = request->server->net.metrics;

	if (error)
		metrics_refused(metrics, request->form->name, error->code);
	else
		metrics_count(metrics, METRIC_RESUMES, 1);
}

/* One of them; what is wrong with it is its own answer. */
static void put_resumed(const struct request *request, const struct resume_lease *asked,
			const struct error *wrong, struct message_writer *w)
{
	struct work *work = &request->server->work;
	struct ref ref = {.has_id = true};
	struct lease_wanted wanted = {.ref = &ref};
	struct resumed_lease answer = {.error = wrong};
	struct lease *lease;
	struct error error;

	if (!wrong) {
		ref.id = *asked->version;
		wanted.device = asked->device;
		wanted.rank = asked->rank;
		wanted.copied = is_copied(asked->transport);
		if (lease_resume_one(request, &wanted, asked, &answer.revoked, &lease, &error) < 0) {
			answer.error = &error;
		} else if (asked->address && leases_announce(work, lease, asked->address, &error) < 0) {
			/* It is not resumed either: its holder would wait for requests in vain. */
			versions_free_unused(work, leases_end(work, lease));
			answer.error = &error;
		} else {
			answer.lease = &lease->id;
		}
	}
	count_resumed(request, answer.error);
	keeping_back(request->server->keeping, asked->lease, request->session->peer.pid,
		     request->session->peer.uid);
	record_put_map(w, NULL, &resumed_lease_record, &answer);
}

static void put_claim_resumed(const struct request *request, const char *name, const struct error *wrong,
			      struct message_writer *w)
{
	struct resumed_claim answer = {.error = wrong};
	struct error error;

	if (!wrong && claim_resume(request, name, &error) < 0)
		answer.error = &error;
	if (answer.error)
		count_resumed(request, answer.error);
	record_put_map(w, NULL, &resumed_claim_record, &answer);
}

int method_resume(struct request *request, const void *given, struct error *error)
{
	const struct resume_params *params = given;
	struct message_writer w;

	/* One that drains gives no new leases, but what is still held it does not free. */
	if (request->server->net.stopping)
		return net_refuse_stopping(error);
	request_result(request, &w);
	message_begin_array(&w, "leases");
	for (uint32_t i = 0; i < params->leases.count; i++)
		put_resumed(request, &params->leases.items[i], params->leases.errors[i], &w);
	message_end(&w);
	if (params->claims.items) {
		message_begin_array(&w, "claims");
		for (uint32_t i = 0; i < params->claims.count; i++)
			put_claim_resumed(request, params->claims.items[i], params->claims.errors[i], &w);
		message_end(&w);
	}
	message_put_u64(&w, "grace_ms", keeping_grace_ms(request->server->keeping));
	request_answer(request, &w);
	return 0;
}
