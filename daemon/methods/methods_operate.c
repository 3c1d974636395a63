#include "methods.h"
#include "reload.h"
#include "../work/versions.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- pins ---- */

static int pin_fields(struct request *request, struct fields *params, const char *what,
		      struct version **ret_version, char pin[NAME_BYTES_MAX + 1], struct error *error)
{
	int r;

	fields_text(params, "pin", pin, NAME_BYTES_MAX + 1);
	r = params_version(request, params, "ref", ret_version, error);
	return r < 0 ? r : access_operate(request->session, (*ret_version)->model, what, error);
}

static void answer_version(const struct request *request, const struct version_id *id)
{
	struct message_writer w;

	request_result(request, &w);
	put_version_id(&w, "version", id);
	request_answer(request, &w);
}

int method_pin_version(struct request *request, struct fields *params, struct error *error)
{
	char pin[NAME_BYTES_MAX + 1];
	struct version *version;
	int r = pin_fields(request, params, METHOD_PIN_VERSION, &version, pin, error);

	if (r == 0)
		r = versions_pin(&request->server->work, version, pin, error);
	if (r == 0)
		answer_version(request, &version->id);
	return r;
}

int method_unpin_version(struct request *request, struct fields *params, struct error *error)
{
	char pin[NAME_BYTES_MAX + 1];
	struct version *version;
	int r = pin_fields(request, params, METHOD_UNPIN_VERSION, &version, pin, error);

	if (r == 0)
		r = versions_unpin(&request->server->work, version, pin, error);
	if (r == 0)
		answer_version(request, &version->id);
	return r;
}

/* ---- swap ---- */

struct swap {
	char model[NAME_BYTES_MAX + 1], alias[NAME_BYTES_MAX + 1], to[NAME_BYTES_MAX + 1];
	struct version_id expect;
	bool has_to, has_expect, retire_old; /* without `to` the alias is removed */
};

static int swap_fields(struct fields *params, struct swap *swap, struct error *error)
{
	fields_text(params, "model", swap->model, sizeof(swap->model));
	fields_text_or(params, "alias", swap->alias, sizeof(swap->alias), ALIAS_CURRENT);
	swap->has_to = fields_have(params, "to");
	if (swap->has_to)
		fields_text(params, "to", swap->to, sizeof(swap->to));
	swap->has_expect = fields_have(params, "expect");
	if (swap->has_expect)
		fields_hex128(params, "expect", swap->expect.bytes);
	swap->retire_old = fields_bool_or(params, "retire_old", false);
	return params_check(params, error);
}

/* An alias of a model that is not there is not there. */
static int swap_model(struct session *session, const struct swap *swap, struct error *error)
{
	struct model *model;
	int r = access_find_model(session, swap->model, &model, error);

	return r < 0 ? r : access_swap(session, model, error);
}

static int swap_target(struct session *session, const struct swap *swap, struct version **ret,
		       struct error *error)
{
	struct ref ref = {0};
	uint64_t generation;
	const char *wrong;

	*ret = NULL;
	if (!swap->has_to)
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
static int swap_old(struct session *session, const struct swap *swap, struct error *error)
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

int method_hot_swap(struct request *request, struct fields *params, struct error *error)
{
	struct server *server = request->server;
	struct swap swap;
	struct versions_swap change = {.model = swap.model, .alias = swap.alias};
	struct swap_result result;
	struct message_writer w;
	struct error kept;
	int r = swap_fields(params, &swap, error);

	if (r == 0)
		r = swap_target(request->session, &swap, &change.to, error);
	if (r == 0)
		r = swap_model(request->session, &swap, error);
	if (r == 0)
		r = swap_old(request->session, &swap, error);
	if (r < 0)
		return r;
	change.expect = swap.has_expect ? &swap.expect : NULL;
	change.retire_old = swap.retire_old;
	r = versions_swap(&server->work, &change, &result, &kept, error);
	if (r < 0)
		return r;
	request_result(request, &w);
	if (result.now)
		put_version_id(&w, "version", &result.now->id);
	if (result.old)
		put_version_id(&w, "old", &result.old->id);
	message_put_u64(&w, "generation", result.generation);
	if (result.old)
		message_put_text(&w, "old_state", version_state_name(result.old->state));
	if (kept.code)
		message_put_error(&w, "retire_error", &kept);
	request_answer(request, &w);
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
	struct message_writer w;

	request_result(request, &w);
	put_version_id(&w, "version", id);
	message_put_text(&w, "state", version_state_name(version ? version->state : VERSION_FREED));
	message_put_u64(&w, "leases", version ? version->lease_count : 0);
	message_put_u64(&w, "pins", version ? version->pin_count : 0);
	request_answer(request, &w);
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

struct force {
	bool wanted;
	uint64_t after_ms;
};

/* Errors stick to params. */
static void force_fields(struct fields *params, struct force *force)
{
	force->wanted = fields_bool_or(params, "force", false);
	force->after_ms = fields_u64_or(params, "after_ms", 0);
	if (params->error.code)
		return;
	if (force->after_ms > 0 && !force->wanted)
		error_set(&params->error, -EINVAL, "it is how long a retire by force leaves to who has leases",
			  "\"after_ms\" without \"force\"");
	if (force->after_ms > FORCE_AFTER_MS_MAX)
		error_set(&params->error, -EINVAL, NULL, "\"after_ms\" is %llu, at most it is %llu",
			  (unsigned long long)force->after_ms, (unsigned long long)FORCE_AFTER_MS_MAX);
}

/* Reads `ref`: a version that this session may retire, or remove. */
static int find_to_retire(struct request *request, struct fields *params, struct version **ret_version,
			  struct error *error)
{
	struct ref ref;
	int r;

	params_ref(params, "ref", &ref);
	r = params_check(params, error);
	if (r == 0)
		r = access_find_own(request->session, &ref, ret_version, error);
	return r == 0 ? access_retire(request->session, *ret_version, error) : r;
}

int method_retire(struct request *request, struct fields *params, struct error *error)
{
	int64_t wait_ms = params_wait(params);
	struct waiter *waiter = NULL;
	struct version *version;
	struct version_id id;
	struct force force;
	int r;

	force_fields(params, &force);
	r = find_to_retire(request, params, &version, error);
	if (r == 0 && force.wanted) /* it takes leases from other users */
		r = access_operate(request->session, version->model, "retire with force", error);
	if (r < 0)
		return r;
	id = version->id;
	if (wait_ms != 0)
		r = waiter_new(request, WAIT_FREED, wait_ms, wake_freed, &waiter, error);
	if (r < 0)
		return r;
	if (waiter)
		waiter->id = id;
	r = force.wanted ? versions_retire_by_force(&request->server->work, version, force.after_ms,
						    request->session->peer.uid, error)
			 : versions_retire(&request->server->work, version, error);
	if (r < 0) {
		waiter_free(waiter);
		return r;
	}
	if (!waiter)
		answer_retired(request, &id, version_by_id(request->server, &id));
	return 0;
}

/* ---- remove ---- */

int method_remove(struct request *request, struct fields *params, struct error *error)
{
	struct version *version;
	struct version_id id;
	int r = find_to_retire(request, params, &version, error);

	if (r < 0)
		return r;
	id = version->id;
	r = versions_remove(&request->server->work, version, error);
	if (r == 0)
		answer_version(request, &id);
	return r;
}

/* ---- reload ---- */

int method_reload(struct request *request, struct fields *params, struct error *error)
{
	struct server *server = request->server;
	struct message_writer w;
	int r = server_reload(server, error);

	(void)params;
	if (r < 0)
		return r;
	request_result(request, &w);
	if (server->config->file)
		message_put_text(&w, "file", server->config->file);
	request_answer(request, &w);
	return 0;
}
