#include "methods.h"
#include "../../base/clock.h"
#include "../work/loaders/loader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int params_device(struct server *server, const char *id, struct device **ret, struct error *error)
{
	const struct device_table *devices = &server->ledger.devices;
	const struct error *failure = loader_pool_failure(server->work.loaders);
	struct device *device = device_find(devices, id);
	char there[TEXT_BYTES_MAX + 1];
	size_t used;

	if (device) {
		*ret = device;
		return 0;
	}
	if (devices->count == 0 && failure)
		return error_set(error, -ENODEV, failure->detail, "no loader has told the devices yet: %.800s",
				 failure->message);
	if (devices->count == 0)
		return error_set(error, -ENODEV, "no loader has told any device yet", "no device \"%s\" here",
				 id);
	used = (size_t)snprintf(there, sizeof(there), "there %s", devices->count == 1 ? "is" : "are");
	for (size_t i = 0; i < devices->count && used < sizeof(there); i++)
		used += (size_t)snprintf(there + used, sizeof(there) - used, "%s %s", i ? "," : "",
					 devices->devices[i]->id);
	return error_set(error, -ENODEV, there, "no device \"%s\" here", id);
}

int find_version(const struct request *request, const struct ref *ref, struct version **ret,
		 struct error *error)
{
	uint64_t generation;

	return access_find(request->session, ref, ret, &generation, error);
}

int params_open(const struct server *server, struct error *error)
{
	if (server->net.stopping)
		return net_refuse_stopping(error);
	if (server->work.draining)
		return error_set(error, -ESHUTDOWN, "it takes no new leases, publishes or loads",
				 "gpuwmd is draining");
	return 0;
}

static bool is_in_named_group(const struct session *session, const struct joiners *joiners)
{
	for (uint32_t i = 0; i < joiners->gid_count; i++) {
		if (peer_in_group(session->sock, &session->peer, joiners->gids[i]))
			return true;
	}
	return false;
}

bool may_take_part(const struct session *session, const struct version *version)
{
	const uid_t uid = session->peer.uid;
	const struct job *job = session->client->loader ? loader_job(session->client->loader) : NULL;

	if (session->kind == SESSION_ADMIN)
		return true;
	if (session->kind == SESSION_LOADER)
		return job && version_id_equal(&job->version, &version->id);
	/* Root of a container has the uid of an operator. */
	if (version->owner == uid && !version->by_operator)
		return true;
	return version->joiners &&
	       (joiners_have_uid(version->joiners, uid) || is_in_named_group(session, version->joiners));
}

static void tell_device(const struct device *device, struct device_told *ret)
{
	*ret = (struct device_told){
		.device = device->id,
		.kind = device->kind->name,
		.name = device->name,
		.total = device->total,
		.budget = device->budget,
		.used = device->used,
		.granularity = device->granularity,
		.context = device->context,
		.contexts = device->contexts,
		.still_mapped = device->still_mapped,
		.rooms = device->rooms,
		.lost = device->lost.code ? &device->lost : NULL,
	};
}

uint32_t tell_devices(const struct server *server, struct device_told ret[DEVICES_MAX],
		      uint64_t ret_ages[DEVICES_MAX])
{
	const uint64_t now = clock_steady_ms();
	const struct device_table *table = &server->ledger.devices;

	for (size_t i = 0; i < table->count; i++) {
		const struct device *device = table->devices[i];

		tell_device(device, &ret[i]);
		if (device->free_at_ms == 0)
			continue;
		ret_ages[i] = now - device->free_at_ms;
		ret[i].free = &device->free;
		ret[i].free_age_ms = &ret_ages[i];
	}
	return (uint32_t)table->count;
}

void put_limits(struct message_writer *w, const struct server *server)
{
	const struct config *config = server->config;

	message_begin_map(w, "limits");
	record_put(w, &limits_told_record,
		   &(struct limits_told){
			   .packet_bytes = PACKET_BYTES_MAX,
			   .packet_fds = PACKET_FDS_MAX,
			   .part_segments = PART_SEGMENTS_MAX,
			   .parts_per_version = PARTS_PER_VERSION_MAX,
			   .versions = VERSIONS_MAX,
			   .store_fds = registry_fds_max(server->ledger.registry),
			   .requests_per_session = REQUESTS_PER_SESSION_MAX,
			   .sessions = config->sessions,
			   .connects_per_second = config->connects_per_second,
			   .loaders = config->loaders,
		   });
	for (int i = 0; i < QUOTA_KINDS; i++) {
		const uint64_t most = quota_alone(&config->quota, (enum quota_kind)i);

		if (most != QUOTA_NONE)
			message_put_u64(w, quota_rows[i].key, most);
	}
	message_end(w);
}
