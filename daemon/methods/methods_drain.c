/* drain: everything goes, or what was lost with a device. */
#include "methods.h"
#include "../clients/audit.h"
#include "../restart/descriptions.h"
#include "../restart/keeping.h"
#include "../work/regions/regions.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <stdio.h>

/* What is still held: of all, or on one device. kept: how many descriptions are kept; NULL: none was to be. */
static void answer_left(const struct request *request, const struct device *device, const uint64_t *kept)
{
	const struct server *server = request->server;
	struct version *version = NULL;
	struct message_writer w;

	request_result(request, &w);
	message_begin_array(&w, "left");
	while ((version = registry_next_version(server->ledger.registry, NULL, version))) {
		if (version->freeing || (device && !version_is_on(version, device)) ||
		    (version->state != VERSION_RETIRING && !(device && version->state == VERSION_READY)))
			continue;
		record_put_map(&w, NULL, &still_held_record,
			       &(struct still_held){.version = &version->id,
						    .model = model_name(version->model),
						    .tag = version->tag,
						    .leases = version->lease_count,
						    .pins = version->pin_count});
	}
	message_end(&w);
	if (kept)
		message_put_u64(&w, "kept_descriptions", *kept);
	request_answer(request, &w);
}

static int drain_all(struct request *request, bool keep_descriptions, struct error *error)
{
	struct server *server = request->server;
	struct error why;
	uint64_t kept = 0;
	int r = keep_descriptions ? keeping_keep_descriptions(server->keeping, error) : 0;

	if (r < 0)
		return r;
	kept = descriptions_count(keeping_descriptions(server->keeping));
	error_set(&why, -ESHUTDOWN, NULL, "gpuwmd is draining");
	work_begin_draining(&server->work, &why);
	server->work.drained = true;
	versions_retire_all(&server->work);
	regions_end_all(&server->work, NULL, &why);
	r = keeping_let_go(server->keeping, error);
	if (r == 0)
		answer_left(request, NULL, keep_descriptions ? &kept : NULL);
	return r;
}

/* A device that is there is not drained: its versions can be moved first, and nothing would tell it from others then. */
static int check_lost(const struct request *request, const struct device *device, struct error *error)
{
	struct version *version = NULL;

	if (device->lost.code)
		return 0;
	/* It may be back, and what was lost with it still be there. */
	while ((version = registry_next_version(request->server->ledger.registry, NULL, version))) {
		if (version_is_on(version, device) && version->tainted && version->tainted->code == -ENODEV)
			return 0;
	}
	return error_set(error, -EINVAL,
			 "gpuwmctl retire --force lets go of a version; gpuwmctl ls says what is there",
			 "%s is not lost", device->id);
}

static int drain_device(struct request *request, const char *id, struct error *error)
{
	struct device *device;
	int r = params_device(request->server, id, &device, error);

	if (r == 0)
		r = check_lost(request, device, error);
	if (r < 0)
		return r;
	versions_drain_lost(&request->server->work, device);
	answer_left(request, device, NULL);
	return 0;
}

int method_drain(struct request *request, const void *given, struct error *error)
{
	const struct drain_params *params = given;

	return params->device ? drain_device(request, params->device, error)
			      : drain_all(request, params->keep_descriptions, error);
}
