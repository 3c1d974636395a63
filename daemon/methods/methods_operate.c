#include "methods.h"
#include "../clients/audit.h"
#include "server.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- pins ---- */

static int find_to_pin(const struct request *request, const struct pin_params *params,
		       struct version **ret_version, struct error *error)
{
	int r = find_version(request, &params->ref.ref, ret_version, error);

	return r < 0 ? r : access_operate(request->session, (*ret_version)->model, request->form->name, error);
}

int method_pin_version(struct request *request, const void *given, struct error *error)
{
	const struct pin_params *params = given;
	struct version *version;
	int r = find_to_pin(request, params, &version, error);

	if (r == 0)
		r = versions_pin(&request->server->work, version, params->pin, error);
	if (r == 0)
		request_tell(request, &(struct version_result){&version->id});
	return r;
}

int method_unpin_version(struct request *request, const void *given, struct error *error)
{
	const struct pin_params *params = given;
	struct version *version;
	int r = find_to_pin(request, params, &version, error);

	if (r == 0)
		r = versions_unpin(&request->server->work, version, params->pin, error);
	if (r == 0)
		request_tell(request, &(struct version_result){&version->id});
	return r;
}

/* ---- swap ---- */

static int swap_target(struct session *session, const struct hot_swap_params *swap, struct version **ret,
		       struct error *error)
{
	struct ref ref = {0};
	uint64_t generation;
	const char *wrong;

	*ret = NULL;
	if (!swap->to)
		return 0;
	if (hex128_parse(swap->to, ref.id.bytes) == 0) {
		ref.has_id = true;
	} else if ((wrong = name_wrong(swap->to)) || (wrong = name_wrong(swap->model))) {
		return error_set(error, -EINVAL, "a tag, an alias or a version id", "\"%s\" of \"%s\" %s",
				 swap->to, swap->model, wrong);
	} else {
		snprintf(ref.model, sizeof(ref.model), "%s", swap->model);
		snprintf(ref.name, sizeof(ref.name), "%s", swap->to);
	}
	return access_find(session, &ref, ret, &generation, error);
}

/* What the swap is to retire must be the session's to retire. */
static int swap_old(struct session *session, const struct hot_swap_params *swap, struct error *error)
{
	struct ref ref = {0};
	struct version *old;
	uint64_t generation;

	snprintf(ref.model, sizeof(ref.model), "%s", swap->model);
	snprintf(ref.name, sizeof(ref.name), "%s", swap->alias);
	if (!swap->retire_old ||
	    registry_find(session->client->clients->ledger->registry, &ref, &old, &generation, NULL) < 0)
		return 0;
	return access_retire(session, old, error);
}

int method_hot_swap(struct request *request, const void *given, struct error *error)
{
	const struct hot_swap_params *params = given;
	struct versions_swap change = {.model = params->model,
				       .alias = params->alias,
				       .expect = params->expect,
				       .retire_old = params->retire_old};
	struct swap_result result;
	struct model *model;
	struct error kept;
	int r = swap_target(request->session, params, &change.to, error);

	if (r == 0) /* an alias of a model that is not there is not there */
		r = access_find_model(request->session, params->model, &model, error);
	if (r == 0)
		r = access_swap(request->session, model, error);
	if (r == 0)
		r = swap_old(request->session, params, error);
	if (r == 0)
		r = versions_swap(&request->server->work, &change, &result, &kept, error);
	if (r < 0)
		return r;
	if (!result.changed)
		audit_outcome(request->audit, "unchanged");
	else
		audit_outcome(request->audit, "%s instead of %s%s%s", result.now ? result.now->tag : "none",
			      result.old ? result.old->tag : "none",
			      kept.code ? ", which is not retired: " : "", kept.code ? kept.message : "");
	request_tell(request, &(struct hot_swap_result){
				      .version = result.now ? &result.now->id : NULL,
				      .old = result.old ? &result.old->id : NULL,
				      .generation = result.generation,
				      .old_state = result.old ? version_state_name(result.old->state) : NULL,
				      .retire_error = kept.code ? &kept : NULL,
			      });
	return 0;
}

/* ---- retire ---- */

static struct version *version_by_id(struct server *server, const struct version_id *id)
{
	struct ref ref = {.has_id = true, .id = *id};
	struct version *version;
	uint64_t generation;

	return registry_find(server->ledger.registry, &ref, &version, &generation, NULL) < 0 ? NULL : version;
}

/* version NULL: it is gone already. */
static void answer_retired(const struct request *request, const struct version_id *id,
			   const struct version *version)
{
	request_tell(request, &(struct retire_result){
				      .version = id,
				      .state = version_state_name(version ? version->state : VERSION_FREED),
				      .leases = version ? version->lease_count : 0,
				      .pins = version ? version->pin_count : 0,
			      });
}

static void wake_freed(struct waiter *waiter, const struct version *changed, bool expired)
{
	struct version *version = version_by_id(waiter->request.server, &waiter->id);
	struct error error;

	(void)changed;
	if (version && !expired)
		return;
	if (version) {
		error_set(&error, -ETIMEDOUT, "it is freed when they are gone; clients says who holds it",
			  "time ran out: %s@%s still has %llu leases and %u pins", model_name(version->model),
			  version->tag, (unsigned long long)version->lease_count, version->pin_count);
		request_refuse(&waiter->request, &error);
	} else {
		answer_retired(&waiter->request, &waiter->id, NULL);
	}
	waiter_free(waiter);
}

/* A version that this session may retire, or remove. */
static int find_to_retire(const struct request *request, const struct reference *ref,
			  struct version **ret_version, struct error *error)
{
	int r = access_find_own(request->session, &ref->ref, ret_version, error);

	return r == 0 ? access_retire(request->session, *ret_version, error) : r;
}

int method_retire(struct request *request, const void *given, struct error *error)
{
	const struct retire_params *params = given;
	struct waiter *waiter = NULL;
	struct version *version;
	struct version_id id;
	uint64_t held, left;
	int r = find_to_retire(request, &params->ref, &version, error);

	if (r == 0 && params->force) /* it takes leases from other users */
		r = access_operate(request->session, version->model, "retire with force", error);
	if (r < 0)
		return r;
	id = version->id;
	if (params->wait_ms != 0)
		r = waiter_new(request, WAIT_FREED, params->wait_ms, wake_freed, &waiter, error);
	if (r < 0)
		return r;
	if (waiter)
		waiter->id = id;
	held = version->lease_count;
	r = params->force ? versions_retire_by_force(&request->server->work, version, params->after_ms, error)
			  : versions_retire(&request->server->work, version, error);
	if (r < 0) {
		waiter_free(waiter);
		return r;
	}
	version = version_by_id(request->server, &id); /* NULL: it is gone already */
	left = version ? version->lease_count : 0;
	audit_outcome(request->audit, "leases: %llu, revoked: %llu, pins: %u", (unsigned long long)left,
		      (unsigned long long)(held - left), version ? version->pin_count : 0);
	if (!waiter)
		answer_retired(request, &id, version);
	return 0;
}

/* ---- remove ---- */

int method_remove(struct request *request, const void *given, struct error *error)
{
	const struct remove_params *params = given;
	struct version *version;
	struct version_id id;
	int r = find_to_retire(request, &params->ref, &version, error);

	if (r < 0)
		return r;
	id = version->id;
	r = versions_remove(&request->server->work, version, error);
	if (r == 0)
		request_tell(request, &(struct version_result){&id});
	return r;
}

/* ---- reload ---- */

int method_reload(struct request *request, const void *params, struct error *error)
{
	int r = server_reload(request->server, error);

	(void)params;
	if (r == 0)
		request_tell(request, &(struct reload_result){request->server->config->file});
	return r;
}
