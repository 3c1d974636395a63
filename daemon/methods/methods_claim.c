#include "methods.h"
#include "../work/versions/claims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* 0: answered, with handles or the claim. *ret_later: another one builds it. */
static int claim_try(const struct request *request, const struct lease_wanted *wanted,
		     struct lease_later *ret_later, struct error *error)
{
	const struct server *server = request->server;
	const struct claim *claim;
	struct version *version;
	uint64_t generation;
	int r = params_open(server, error);

	*ret_later = (struct lease_later){0};
	if (r < 0)
		return r;
	/* The name is a version's, and not an alias, and the version is there, or comes to be. */
	if (access_find(request->session, wanted->ref, &version, &generation, NULL) == 0 &&
	    strcmp(version->tag, wanted->ref->name) == 0 && version->state != VERSION_FAILED)
		return lease_answer(request, wanted, ret_later, error);
	r = access_publish(request->session, wanted->ref->model, error);
	if (r == 0)
		r = registry_tag_allowed(server->ledger.registry, wanted->ref, error);
	if (r < 0)
		return r;
	claim = claim_find(server->ledger.claims, wanted->ref);
	if (!claim) {
		r = claims_elect(&request->server->work, request->session, wanted->ref, error);
		if (r == 0)
			request_tell(request, &(struct claim_result){.claimed = true});
		return r;
	}
	if (claim->holder == request->session)
		return error_set(error, -EBUSY, "publish it, or give the claim up",
				 "this connection has claimed %s@%s already", wanted->ref->model,
				 wanted->ref->name);
	ret_later->comes = true;
	return claims_taken(&server->work, claim, error);
}

static void claim_wake(struct waiter *waiter, const struct version *changed, bool expired)
{
	(void)changed;
	lease_wake(waiter, expired, claim_try);
}

int method_claim(struct request *request, const void *given, struct error *error)
{
	const struct claim_params *params = given;
	struct lease_wanted wanted = {.ref = &params->name.ref,
				      .device = params->device ? params->device : "",
				      .rank = params->rank,
				      .owner = params->owner};
	struct lease_later later = {0};
	struct device *device = NULL;
	int r = 0;

	/* A device or a rank that no version can have would only be found out once it is built. */
	if (wanted.rank >= PARTS_PER_VERSION_MAX)
		return error_set(error, -EINVAL, NULL, "rank is %llu; a version has at most %d parts",
				 (unsigned long long)wanted.rank, PARTS_PER_VERSION_MAX);
	if (wanted.device[0])
		r = params_device(request->server, wanted.device, &device, error);
	if (r == 0 && device)
		r = device_check_there(device, error);
	if (r == 0)
		r = claim_try(request, &wanted, &later, error);
	wanted.promotion = later.promotion;
	if (r < 0 && later.comes && params->wait_ms != 0)
		return lease_wait(request, WAIT_CLAIM, &wanted, params->wait_ms, claim_wake, error);
	return r;
}

int claim_resume(const struct request *request, const char *text, struct error *error)
{
	const struct server *server = request->server;
	struct claim *claim;
	const char *why = "";
	struct ref name;
	int r = ref_parse(text, &name, &why);

	if (r < 0 || name.has_id || !strchr(text, '@'))
		return error_set(error, -EINVAL, NULL, "%s is no model@tag", text);
	r = access_publish(request->session, name.model, error);
	if (r == 0)
		r = params_open(server, error);
	if (r == 0)
		r = registry_tag_allowed(server->ledger.registry, &name, error);
	if (r < 0)
		return r;
	claim = claim_find(server->ledger.claims, &name);
	if (claim && !claim->holder)
		return claims_take_back(&request->server->work, request->session, claim, error);
	if (claim) /* its own, by an earlier resume, or another session's */
		return claims_check(&server->work, request->session, &name, error);
	return claims_elect(&request->server->work, request->session, &name, error);
}

int method_claim_give_up(struct request *request, const void *given, struct error *error)
{
	const struct ref *name = &((const struct claim_give_up_params *)given)->name.ref;
	struct server *server = request->server;
	struct claim *claim = claim_find(server->ledger.claims, name);

	if (!claim || (claim->holder != request->session && request->session->kind != SESSION_ADMIN))
		return error_set(error, -ENOENT, "a claim is given up on the connection that took it",
				 "this connection has not claimed %s@%s", name->model, name->name);
	if (claim_has_begun(claim))
		return error_set(error, -EBUSY, "abort the publish: that ends the claim too",
				 "%s@%s is being built", name->model, name->name);
	claims_end(&server->work, claim);
	request_done(request);
	return 0;
}
