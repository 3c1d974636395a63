#include "methods.h"
#include "../base/clock.h"
#include "../work/loader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REF_BYTES (2 * NAME_BYTES_MAX + 1)

int params_check(const struct fields *params, struct error *error)
{
	if (params->error.code)
		*error = params->error;
	return params->error.code;
}

void params_ref(struct fields *params, const char *key, struct ref *ret)
{
	char text[REF_BYTES + 1];
	const char *why;

	fields_text(params, key, text, sizeof(text));
	if (params->error.code == 0 && ref_parse(text, ret, &why) < 0)
		error_set(&params->error, -EINVAL, "model, model@tag, model@alias or a version id",
			  "\"%s\": the %s %s", text, key, why);
}

void params_name(struct fields *params, const char *key, struct ref *ret)
{
	char text[REF_BYTES + 1];
	const char *why = "is not model@tag";

	fields_text(params, key, text, sizeof(text));
	if (params->error.code)
		return;
	if (!strchr(text, '@') || ref_parse(text, ret, &why) < 0 || ret->has_id)
		error_set(&params->error, -EINVAL, "a new version is named model@tag", "\"%s\": the %s %s",
			  text, key, why);
}

static void list_devices(const struct server *server, char *text, size_t size)
{
	size_t used =
		(size_t)snprintf(text, size, "there %s", server->ledger.devices.count == 1 ? "is" : "are");

	for (size_t i = 0; i < server->ledger.devices.count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "",
					 server->ledger.devices.devices[i]->id);
	if (server->ledger.devices.count == 0)
		snprintf(text, size, "no loader has told any device yet");
}

int params_device(struct server *server, const char *id, struct device **ret, struct error *error)
{
	char there[TEXT_BYTES_MAX + 1];
	struct device *device = device_find(&server->ledger.devices, id);
	const struct error *failure = loader_pool_failure(server->work.loaders);

	if (!device && server->ledger.devices.count == 0 && failure)
		return error_set(error, -ENODEV, failure->detail, "no loader has told the devices yet: %.800s",
				 failure->message);
	if (!device) {
		list_devices(server, there, sizeof(there));
		return error_set(error, -ENODEV, there, "no device \"%s\" here", id);
	}
	*ret = device;
	return 0;
}

int find_version(const struct request *request, const struct ref *ref, struct version **ret,
		 struct error *error)
{
	uint64_t generation;

	return access_find(request->session, ref, ret, &generation, error);
}

int64_t params_wait(struct fields *params)
{
	int64_t wait_ms = fields_i64_or(params, "wait_ms", 0);

	if (wait_ms < -1 && !params->error.code)
		error_set(&params->error, -EINVAL, "-1 waits for ever", "\"wait_ms\" is %lld",
			  (long long)wait_ms);
	return wait_ms;
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

void put_version_id(struct message_writer *w, const char *key, const struct version_id *id)
{
	message_put_hex128(w, key, id->bytes);
}

static void put_device(struct message_writer *w, const struct device *device, uint64_t now_ms)
{
	message_begin_map(w, NULL);
	message_put_text(w, "device", device->id);
	message_put_text(w, "kind", device->kind->name);
	message_put_text(w, "name", device->name);
	message_put_u64(w, "total", device->total);
	if (device->free_at_ms > 0) {
		message_put_u64(w, "free", device->free);
		message_put_u64(w, "free_age_ms", now_ms - device->free_at_ms);
	}
	message_put_u64(w, "budget", device->budget);
	message_put_u64(w, "used", device->used);
	message_put_u64(w, "granularity", device->granularity);
	message_put_u64(w, "context", device->context);
	message_put_u64(w, "contexts", device->contexts);
	message_put_u64(w, "still_mapped", device->still_mapped);
	if (device->lost.code)
		message_put_error(w, "lost", &device->lost);
	message_end(w);
}

void put_devices(struct message_writer *w, const struct server *server)
{
	uint64_t now = clock_steady_ms();

	message_begin_array(w, "devices");
	for (size_t i = 0; i < server->ledger.devices.count; i++)
		put_device(w, server->ledger.devices.devices[i], now);
	message_end(w);
}

void put_limits(struct message_writer *w, const struct server *server)
{
	const struct config *config = server->config;

	message_begin_map(w, "limits");
	message_put_u64(w, "packet_bytes", PACKET_BYTES_MAX);
	message_put_u64(w, "packet_fds", PACKET_FDS_MAX);
	message_put_u64(w, "part_segments", PART_SEGMENTS_MAX);
	message_put_u64(w, "parts_per_version", PARTS_PER_VERSION_MAX);
	message_put_u64(w, "versions", VERSIONS_MAX);
	message_put_u64(w, "store_fds", registry_fds_max(server->ledger.registry));
	message_put_u64(w, "requests_per_session", REQUESTS_PER_SESSION_MAX);
	message_put_u64(w, "sessions", config->sessions);
	message_put_u64(w, "connects_per_second", config->connects_per_second);
	message_put_u64(w, "loaders", config->loaders);
	for (int i = 0; i < QUOTA_KINDS; i++) {
		if (config->quota.per_uid[i] != QUOTA_NONE)
			message_put_u64(w, quota_keys[i], config->quota.per_uid[i]);
	}
	message_end(w);
}
