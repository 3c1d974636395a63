/* Who builds a version that is not there: one, and the others wait. */
#include "claim.h"

#include "call.h"
#include "mapping.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a client holds ----------------------------------------------- */

/* Out of the list; NULL: it is not in it. Under the lock. */
static struct claim *take_out(struct reviver *v, const char *name)
{
	struct claim **link = &v->claims, *claim;

	while (*link && strcmp((*link)->name, name) != 0)
		link = &(*link)->next;
	claim = *link;
	if (claim)
		*link = claim->next;
	return claim;
}

static struct claim *find(struct gpuwm_client *client, const char *name)
{
	struct reviver *v = &client->reviver;
	struct claim *claim;

	pthread_mutex_lock(&v->lock);
	claim = take_out(v, name);
	pthread_mutex_unlock(&v->lock);
	return claim;
}

/* False: the connection of this round has ended, and the claim with it. */
static bool hold(struct gpuwm_client *client, struct claim *claim, uint64_t round)
{
	struct reviver *v = &client->reviver;
	bool there;

	pthread_mutex_lock(&v->lock);
	there = v->connection && v->round == round;
	claim->round = round;
	if (there) {
		claim->next = v->claims;
		v->claims = claim;
	}
	pthread_mutex_unlock(&v->lock);
	return there;
}

void claim_spend(struct gpuwm_client *client, const char *name)
{
	free(find(client, name));
}

void claims_free(struct gpuwm_client *client)
{
	struct claim *claim;

	while ((claim = client->reviver.claims)) {
		client->reviver.claims = claim->next;
		free(claim);
	}
}

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
	while (r == 1 && !hold(client, claim, round));
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

static int check(const struct gpuwm_client *client, const char *name, struct error *error)
{
	int r = client_check(client, error);

	if (r == 0 && !name)
		r = error_set(error, -EINVAL, "model@tag", "the name is NULL");
	return r;
}

int gpuwm_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *given,
		struct gpuwm_mapping **ret_mapping)
{
	struct gpuwm_attach_options options;
	struct gpuwm_mapping *mapping = NULL;
	struct claim *claim = NULL;
	struct error error;
	int r = check(client, name, &error);

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
static int tell_give_up(struct gpuwm_client *client, const struct claim *claim, struct error *error)
{
	struct call call;
	int r;

	call_begin(&call, client, METHOD_CLAIM_GIVE_UP);
	call.only = claim->round;
	message_put_text(&call.request, "name", claim->name);
	r = call_run(&call, 0, NULL, error);
	return r == -ECONNRESET || r == -ECONNABORTED ? 0 : r;
}

int gpuwm_claim_give_up(struct gpuwm_client *client, const char *name)
{
	struct claim *claim = NULL;
	struct error error;
	int r = check(client, name, &error);

	if (r == 0)
		claim = find(client, name);
	if (r == 0 && !claim)
		r = error_set(&error, -ENOENT, "a publish that was begun has taken its claim over",
			      "this client has no claim of %s", name);
	if (r == 0)
		r = tell_give_up(client, claim, &error);
	free(claim);
	return r < 0 ? client_fail(&error) : 0;
}

void claims_give_up(struct gpuwm_client *client)
{
	struct reviver *v = &client->reviver;
	struct claim *claim;

	while (true) {
		pthread_mutex_lock(&v->lock);
		claim = v->claims ? take_out(v, v->claims->name) : NULL;
		pthread_mutex_unlock(&v->lock);
		if (!claim)
			return;
		tell_give_up(client, claim, NULL);
		free(claim);
	}
}

/* ---- after a restart ----------------------------------------------------- */

struct names {
	char texts[RESUME_CLAIMS_MAX][2 * NAME_BYTES_MAX + 2];
	size_t count;
};

/* Those that the connection of this round was not asked for yet. */
static void pick(struct reviver *v, uint64_t round, struct names *ret)
{
	ret->count = 0;
	pthread_mutex_lock(&v->lock);
	for (const struct claim *claim = v->claims; claim && ret->count < RESUME_CLAIMS_MAX;
	     claim = claim->next) {
		if (claim->round != round)
			strcpy(ret->texts[ret->count++], claim->name);
	}
	pthread_mutex_unlock(&v->lock);
}

static int ask_resume(struct connection *connection, const struct names *names, struct reply *ret_reply,
		      struct error *error)
{
	struct message_writer w;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), METHOD_RESUME);
	message_begin_array(&w, "leases");
	message_end(&w);
	message_begin_array(&w, "claims");
	for (size_t i = 0; i < names->count; i++)
		message_put_text(&w, NULL, names->texts[i]);
	message_end(&w);
	message_end(&w);
	r = connection_call(connection, &w, NULL, 0, CALL_TIMEOUT_MS, ret_reply, error);
	message_writer_clear(&w);
	return r;
}

/* Of one that was given up meanwhile gpuwmd is told. */
static int give_up_on(struct connection *connection, const char *name, struct error *error)
{
	struct message_writer w;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), METHOD_CLAIM_GIVE_UP);
	message_put_text(&w, "name", name);
	message_end(&w);
	r = connection_call(connection, &w, NULL, 0, CALL_TIMEOUT_MS, NULL, error);
	message_writer_clear(&w);
	return r == -ENOENT ? 0 : r;
}

/* taken: gpuwmd counts it on the connection of this round. */
static int settle(struct gpuwm_client *client, struct connection *connection, uint64_t round, const char *name,
		  bool taken, struct error *error)
{
	struct reviver *v = &client->reviver;
	struct claim *claim;

	pthread_mutex_lock(&v->lock);
	claim = take_out(v, name);
	if (claim && taken) {
		claim->round = round;
		claim->next = v->claims;
		v->claims = claim;
	}
	pthread_mutex_unlock(&v->lock);
	if (!taken)
		free(claim);
	return taken && !claim ? give_up_on(connection, name, error) : 0;
}

static int settle_all(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		      const struct names *names, const msgpack_object *body, struct error *error)
{
	const msgpack_object *answers = NULL;
	uint32_t count = 0;
	struct error why;
	struct fields f;
	int r = 0;

	/* An older gpuwmd knows of none. */
	fields_of(&f, body);
	if (fields_have(&f, "claims"))
		answers = fields_array(&f, "claims", &count);
	if (f.error.code || (answers && count != names->count))
		return error_set(error, -EPROTO, NULL, "resume: %u answers for %zu claims", count,
				 names->count);
	for (size_t i = 0; r == 0 && i < names->count; i++) {
		struct fields answer;

		if (answers)
			fields_of(&answer, &answers[i]);
		r = settle(client, connection, round, names->texts[i],
			   answers && !fields_error(&answer, "error", &why) && !answer.error.code, error);
	}
	return r;
}

static int resume_some(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		       struct names *names, struct error *error)
{
	struct reply reply;
	int r = 0;

	for (pick(&client->reviver, round, names); r == 0 && names->count > 0;
	     pick(&client->reviver, round, names)) {
		r = ask_resume(connection, names, &reply, error);
		if (r < 0)
			break;
		r = settle_all(client, connection, round, names, reply.message.body, error);
		reply_clear(&reply);
	}
	return r == -ENOSYS || r == -EUCLEAN ? 0 : r;
}

int claims_resume(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		  struct error *error)
{
	struct reviver *v = &client->reviver;
	struct names *names;
	bool any;
	int r;

	pthread_mutex_lock(&v->lock);
	any = v->claims;
	pthread_mutex_unlock(&v->lock);
	if (!any)
		return 0;
	names = malloc(sizeof(*names));
	if (!names)
		return error_set(error, -ENOMEM, NULL, "out of memory for claims");
	r = resume_some(client, connection, round, names, error);
	free(names);
	return r;
}
