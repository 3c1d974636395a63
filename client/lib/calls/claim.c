/* Who builds a version that is not there: one, and the others wait. */
#include "connect.h"

#include "../mapping/attach.h"
#include "../request/call.h"
#include "../request/client.h"
#include "../request/lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- claiming ----------------------------------------------------------- */

/* 1: claimed; 0: attached. */
static int claim_or_attach(struct gpuwm_client *client, const char *name,
			   const struct gpuwm_attach_options *options, struct claim *claim,
			   struct gpuwm_mapping *mapping, struct error *error)
{
	struct grant grant;
	uint64_t round;
	int r;

	do
		r = grant_claim(client, name, options, &grant, &round, error);
	while (r == 1 && !claims_hold(&client->reviver, claim, round));
	return r == 0 ? mapping_take(client, &grant, options, mapping, error) : r;
}

static int claim_new(const char *name, struct claim **ret_claim, struct gpuwm_mapping **ret_mapping,
		     struct error *error)
{
	struct claim *claim = calloc(1, sizeof(*claim));
	struct gpuwm_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!claim || !mapping) {
		free(claim);
		free(mapping);
		return error_set(error, -ENOMEM, NULL, "out of memory for a claim");
	}
	snprintf(claim->name, sizeof(claim->name), "%s", name);
	*ret_claim = claim;
	*ret_mapping = mapping;
	return 0;
}

static int claim_check(const struct gpuwm_client *client, const char *name, struct error *error)
{
	int r = client_check(client, error);

	if (r == 0 && !name)
		r = error_set(error, -EINVAL, "model@tag", "no name was given");
	return r;
}

int gpuwm_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *given,
		struct gpuwm_mapping **ret_mapping)
{
	struct gpuwm_attach_options options;
	struct gpuwm_mapping *mapping = NULL;
	struct claim *claim = NULL;
	struct error error;
	int r = claim_check(client, name, &error);

	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0)
		r = claim_new(name, &claim, &mapping, &error);
	if (r < 0)
		return client_fail(&error);
	r = claim_or_attach(client, name, &options, claim, mapping, &error);
	if (r != 1)
		free(claim);
	if (r != 0)
		free(mapping);
	if (r == 0)
		*ret_mapping = mapping;
	return r < 0 ? client_fail(&error) : r;
}

/* ---- giving up ---------------------------------------------------------- */

/* 0 also when it had ended with its connection. */
static int claim_tell_give_up(struct gpuwm_client *client, const struct claim *claim, struct error *error)
{
	struct call call;
	int r;

	call_begin(&call, client, &form_claim_give_up,
		   &(struct claim_give_up_params){.name.text = claim->name});
	call.only = claim->round;
	r = call_run(&call, 0, NULL, error);
	return r == -ECONNRESET || r == -ECONNABORTED ? 0 : r;
}

int gpuwm_claim_give_up(struct gpuwm_client *client, const char *name)
{
	struct claim *claim = NULL;
	struct error error;
	int r = claim_check(client, name, &error);

	if (r == 0)
		claim = claims_take(&client->reviver, name);
	if (r == 0 && !claim)
		r = error_set(&error, -ENOENT, "a publish that was begun has taken its claim over",
			      "this client has no claim of %s", name);
	if (r == 0)
		r = claim_tell_give_up(client, claim, &error);
	free(claim);
	return r < 0 ? client_fail(&error) : 0;
}

void claims_give_up(struct gpuwm_client *client)
{
	struct claim *claim;

	while ((claim = claims_take_first(&client->reviver))) {
		claim_tell_give_up(client, claim, NULL);
		free(claim);
	}
}
