#include "methods.h"
#include "../clients/clients.h"
#include "../work/versions/claims.h"
#include "../../base/clock.h"
#include "../config/roots.h"
#include "../restart/descriptions.h"
#include "../restart/keeping.h"
#include "../work/loaders/loader.h"
#include "../work/versions/leases.h"
#include "../work/tiers/room.h"
#include "../work/tiers/tiers.h"
#include "../work/versions/unparks.h"
#include "../work/jobs/verify.h"
#include "../../base/utf8.h"
#include "../../service/process.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROLES 5

/* 8,000 descriptors take 8 ms to list. */
#define FDS_COUNTED_MS 1000
#define RSS_READ_MS 100 /* half of what a status costs else */

/* ---- hello, ping ---- */

int method_hello(struct request *request, const void *given, struct error *error)
{
	static const enum role all_roles[ROLES] = {ROLE_WORKER, ROLE_PUBLISHER, ROLE_OPERATOR, ROLE_OBSERVER,
						   ROLE_LOADER};
	const struct hello_params *params = given;
	const uint64_t min = params->protocol_min, max = params->protocol_max;
	const struct server *server = request->server;
	struct client *client = request->session->client;
	struct device_told devices[DEVICES_MAX];
	uint64_t ages[DEVICES_MAX];
	const unsigned may = access_roles(request->session);
	const char *roles[ROLES];
	uint32_t role_count = 0;
	struct message_writer w;

	if (min > PROTOCOL_MAX || max < PROTOCOL_MIN || min > max)
		return error_set(error, -EPROTONOSUPPORT, "install gpuwmd and libgpuwm-client of one release",
				 "the client speaks protocol %llu to %llu, gpuwmd " GPUWM_VERSION
				 " speaks %d to %d",
				 (unsigned long long)min, (unsigned long long)max, PROTOCOL_MIN, PROTOCOL_MAX);
	client->greeted = true;
	snprintf(client->name, sizeof(client->name), "%s", params->client);
	request_result(request, &w);
	for (size_t i = 0; i < ROLES; i++) {
		if (may & all_roles[i])
			roles[role_count++] = role_name(all_roles[i]);
	}
	record_put(&w, request->form->result,
		   &(struct hello_result){
			   .protocol = max < PROTOCOL_MAX ? max : PROTOCOL_MAX,
			   .instance = &server->instance,
			   .ledger = keeping_ledger(server->keeping),
			   .epoch = keeping_epoch(server->keeping),
			   .server = GPUWM_VERSION,
			   .pid = (uint64_t)getpid(),
			   .roles = {roles, role_count},
			   .devices = {devices, tell_devices(server, devices, ages)},
		   });
	put_limits(&w, server);
	request_answer(request, &w);
	return 0;
}

int method_ping(struct request *request, const void *params, struct error *error)
{
	(void)params;
	(void)error;
	request_done(request);
	return 0;
}

/* ---- status ---- */

static uint64_t list_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t count = 0;

	if (!dir)
		return 0;
	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	for (const struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count - 1; /* the folder itself */
}

/* Linux 6.2 and newer tell the count as the folder's size, in a microsecond. To list the folder takes a
 * microsecond for each descriptor, and anybody may ask: on older kernels the last count is kept for a while. */
static uint64_t count_fds(void)
{
	static uint64_t counted, counted_ms;
	uint64_t now = clock_steady_ms();
	struct stat st;

	if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
		return (uint64_t)st.st_size;
	if (counted_ms == 0 || now - counted_ms >= FDS_COUNTED_MS) {
		counted = list_fds();
		counted_ms = now;
	}
	return counted;
}

static uint64_t resident_bytes(void)
{
	static uint64_t bytes, read_ms;
	const uint64_t now = clock_steady_ms();
	unsigned long long pages = 0;
	FILE *file;

	if (read_ms != 0 && now - read_ms < RSS_READ_MS)
		return bytes;
	file = fopen("/proc/self/statm", "re");
	if (file && fscanf(file, "%*u %llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	read_ms = now;
	return bytes;
}

static uint64_t still_mapped(const struct server *server)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < server->ledger.devices.count; i++)
		bytes += server->ledger.devices.devices[i]->still_mapped;
	return bytes;
}

/* ret points into `counts`. */
static void tell_counts(const struct server *server, const struct registry_counts *counts,
			struct status_result *ret)
{
	ret->demoted = &counts->demoted;
	ret->leases = counts->leases;
	ret->versions = counts->versions;
	ret->nameless = counts->nameless;
	ret->aliases = counts->aliases;
	ret->pins = counts->pins;
	ret->bytes = counts->bytes;
	ret->shared_bytes = counts->shared_bytes;
	ret->index_bytes = counts->index_bytes;
	ret->segments = counts->segments;
	ret->sessions = server->net.session_count;
	ret->revoked = revoked_count(&server->work);
	ret->still_mapped = still_mapped(server);
	ret->publishes = publish_count(server->ledger.publishes);
	ret->claims = claim_count(server->ledger.claims);
	ret->regions = server->ledger.regions.count;
	ret->region_users = server->ledger.regions.users;
	ret->region_bytes = server->ledger.regions.bytes;
	ret->copies = &server->ledger.copies.count;
	ret->copy_bytes = &server->ledger.copies.bytes;
	ret->waiting = server->clients.waiting;
	ret->requests = server->clients.requests;
	ret->refused = server->clients.refused;
	ret->jobs_running = server->work.jobs.running;
	ret->loaders = loader_pool_count(server->work.loaders);
	ret->standby = loader_pool_standby(server->work.loaders);
	ret->fds = count_fds();
	ret->rss = resident_bytes();
}

static void tell_program(char program[PATH_BYTES_MAX + 1], bool *replaced, struct status_result *ret)
{
	*replaced = own_program_is_gone(program, PATH_BYTES_MAX + 1);
	if (!*program)
		return;
	utf8_make_line(program);
	ret->program = program;
	ret->replaced = replaced;
}

static struct tiers_told tell_tiers(const struct server *server)
{
	struct descriptions *descriptions = keeping_descriptions(server->keeping);
	const struct restore *restore = &server->work.restore;

	return (struct tiers_told){
		.folder = *descriptions_path(descriptions) ? descriptions_path(descriptions) : NULL,
		.error = descriptions_error(descriptions),
		.described = descriptions_count(descriptions),
		.pending = descriptions_pending(descriptions),
		.found = keeping_found(server->keeping),
		.to_restore = server->config->tiers_restore ? restore->total : 0,
		.restored = restore->done,
		.not_restored = restore->failed,
	};
}

/* The version that would leave the device first if somebody needed a byte more there than it has. */
static void put_leaves_next(struct message_writer *w, const struct work *work, struct device *device)
{
	const struct eviction_before nothing = {0};
	const struct tiers_need need = {
		.device = device,
		.bytes = budget_left(device) + room_being_freed(work, device) + 1,
		.no_context = true,
		.who = {.by_operator = true},
	};
	struct eviction_plan plan;
	struct error unused;

	if (evictions_foresee(work, &need, &nothing, &plan, &unused) == 0 && plan.count > 0) {
		const struct version *version = plan.list[0].version;

		record_put_map(w, NULL, &leaves_next_record,
			       &(struct leaves_next_told){
				       .device = device->id,
				       .version = &version->id,
				       .model = model_name(version->model),
				       .tag = version->tag,
				       .bytes = plan.list[0].bytes,
				       .to = tier_name(plan.list[0].to),
			       });
	}
	free(plan.list);
}

static void put_leaving(struct message_writer *w, struct server *server, bool may_know)
{
	message_begin_array(w, "leaves_next");
	for (size_t i = 0; may_know && i < server->ledger.devices.count; i++)
		put_leaves_next(w, &server->work, server->ledger.devices.devices[i]);
	message_end(w);
}

int method_status(struct request *request, const void *params, struct error *error)
{
	struct server *server = request->server;
	const struct keeping *keeping = server->keeping;
	const bool may_know = access_roles(request->session) & (ROLE_OPERATOR | ROLE_OBSERVER);
	struct device_told devices[DEVICES_MAX];
	uint64_t ages[DEVICES_MAX];
	const struct scrub_told scrub = scrub_tell(server->work.scrub);
	const uint64_t jobs_queued = server->work.jobs.queued;
	struct tiers_told tiers;
	struct root_told judged_items[ROOTS_MAX];
	struct roots_told judged;
	const uint64_t standby_pid = loader_pool_standby_pid(server->work.loaders);
	const struct registry_counts counts = registry_counts(server->ledger.registry);
	char program[PATH_BYTES_MAX + 1];
	bool replaced;
	struct status_result status = {
		.server = GPUWM_VERSION,
		.instance = &server->instance,
		.pid = (uint64_t)getpid(),
		.uptime_ms = clock_steady_ms() - server->started_ms,
		.draining = server->work.draining,
		.seq = event_last(server->ledger.events),
		.jobs_queued = &jobs_queued,
		.devices = {devices, tell_devices(server, devices, ages)},
		.roots = {(const char *const *)server->config->roots, (uint32_t)server->config->root_count},
		.scrub = &scrub,
		.tiers = &tiers,
		.config = server->config->file,
		.standby_pid = standby_pid ? &standby_pid : NULL,
		.ledger = keeping_ledger(keeping),
		.epoch = keeping_epoch(keeping),
		.kept = keeping_stores(keeping),
		.adopted = keeping_adopted(keeping),
		.lost = keeping_lost(keeping),
		.unread = keeping_unread(keeping),
		.grace_ms = keeping_grace_ms(keeping),
		.awaited = keeping_awaited(keeping),
		.locked = keeping_locked(keeping),
	};
	struct message_writer w;

	(void)params;
	(void)error;
	tell_counts(server, &counts, &status);
	tell_program(program, &replaced, &status);
	tiers = tell_tiers(server);
	if (roots_tell(server->roots, judged_items, &judged))
		status.roots_judged = &judged;
	request_result(request, &w);
	record_put(&w, request->form->result, &status);
	put_limits(&w, server);
	put_leaving(&w, server, may_know);
	loader_pool_put(&w, server->work.loaders, may_know);
	request_answer(request, &w);
	loader_pool_refresh(server->work.loaders);
	return 0;
}

/* ---- clients ---- */

static void put_lease(struct message_writer *w, const struct lease *lease)
{
	const struct version *version = lease->version;
	const struct replica *replica = &version->replicas[lease->replica];
	const uint64_t waiting_ms = unpark_since_ms(lease);

	record_put_map(w, NULL, &lease_told_record,
		       &(struct lease_told){
			       .lease = lease->id,
			       .version = &version->id,
			       .model = model_name(version->model),
			       .tag = version->tag,
			       .device = replica->device->id,
			       .rank = replica->rank,
			       .since_ms = lease->since_ms,
			       .address = lease->address,
			       .parked = lease->parked,
			       .transport = lease->copy ? TRANSPORT_CUDA_IPC : NULL,
			       .room = lease_room_bytes(lease),
			       .waiting_ms = waiting_ms ? &waiting_ms : NULL,
			       .missing = lease->missing ? &lease->missing : NULL,
		       });
}

static void put_publishes(struct message_writer *w, const struct session *session)
{
	const struct publish_table *table = session->client->clients->ledger->publishes;

	message_begin_array(w, "publishes");
	for (const struct publish *publish = publish_next(table, NULL); publish;
	     publish = publish_next(table, publish)) {
		if (publish_has_publisher(publish, session))
			message_put_hex128(w, NULL, publish->id.bytes);
	}
	message_end(w);
}

/* Only operators see the id of a publish, which is a secret. seen_by: the session that asks. */
static void put_client(struct message_writer *w, const struct session *session, struct session *seen_by)
{
	message_begin_map(w, NULL);
	record_put(w, &client_told_record,
		   &(struct client_told){
			   .session = session->id,
			   .pid = peer_pid(&session->peer),
			   .uid = session->peer.uid,
			   .gid = session->peer.gid,
			   .name = session->client->name,
			   .command = session->peer.command,
			   .socket = session_kind_name(session->kind),
			   .since_ms = session->since_ms,
			   .requests = &session->client->requests,
		   });
	message_begin_array(w, "leases");
	for (const struct lease *lease = session->client->leases; lease; lease = lease->next_of_holder)
		put_lease(w, lease);
	put_revoked_of(w, session);
	message_end(w);
	if (access_roles(seen_by) & ROLE_OPERATOR)
		put_publishes(w, session);
	put_claims_of(w, session);
	message_end(w);
}

static void put_user(struct message_writer *w, const struct quota *quota, uid_t uid)
{
	message_begin_map(w, NULL);
	record_put(w, &user_told_record, &(struct user_told){uid});
	for (int kind = 0; kind < QUOTA_KINDS; kind++)
		message_put_u64(w, quota_rows[kind].name, quota_used(quota, uid, (enum quota_kind)kind));
	message_end(w);
}

/* only: the sessions and charges of this user; NULL: all, and what sessions left that have ended. */
static void answer_clients(struct request *request, const uid_t *only)
{
	const struct quota *quota = request->server->ledger.quota;
	const struct quota_user *user = NULL;
	struct message_writer w;

	request_result(request, &w);
	message_begin_array(&w, "clients");
	for (const struct session *s = request->server->net.sessions; s; s = s->next) {
		if (s->kind != SESSION_LOADER && !s->ended && (!only || s->peer.uid == *only))
			put_client(&w, s, request->session);
	}
	if (!only)
		put_revoked_gone(&w, &request->server->work);
	message_end(&w);
	message_begin_array(&w, "users");
	while (!only && (user = quota_next_user(quota, user)))
		put_user(&w, quota, quota_user_uid(user));
	if (only)
		put_user(&w, quota, *only);
	message_end(&w);
	request_answer(request, &w);
}

int method_clients(struct request *request, const void *params, struct error *error)
{
	(void)params;
	(void)error;
	answer_clients(request, NULL);
	return 0;
}

int method_own_clients(struct request *request, const void *params, struct error *error)
{
	(void)params;
	(void)error;
	answer_clients(request, &request->session->peer.uid);
	return 0;
}

/* ---- subscribe ---- */

int method_subscribe(struct request *request, const void *given, struct error *error)
{
	const struct subscribe_params *params = given;
	struct client *client = request->session->client;
	const uint64_t last = event_last(request->server->ledger.events);

	client->event_seq = params->after && *params->after < last ? *params->after : last;
	if (audience_join(request->session) <
	    0) /* its events come in its share's next step: after the answer */
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	request_tell(request, &(struct subscribe_result){last});
	return 0;
}
