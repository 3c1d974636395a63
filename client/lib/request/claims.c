#include "client.h"

#include <errno.h>
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

struct claim *claims_take(struct reviver *v, const char *name)
{
	struct claim *claim;

	pthread_mutex_lock(&v->lock);
	claim = take_out(v, name);
	pthread_mutex_unlock(&v->lock);
	return claim;
}

bool claims_hold(struct reviver *v, struct claim *claim, uint64_t round)
{
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

struct claim *claims_take_first(struct reviver *v)
{
	struct claim *claim;

	pthread_mutex_lock(&v->lock);
	claim = v->claims ? take_out(v, v->claims->name) : NULL;
	pthread_mutex_unlock(&v->lock);
	return claim;
}

void claims_free(struct reviver *v)
{
	struct claim *claim;

	while ((claim = v->claims)) {
		v->claims = claim->next;
		free(claim);
	}
}

/* ---- after a restart ----------------------------------------------------- */

struct names {
	char texts[RESUME_CLAIMS_MAX][2 * NAME_BYTES_MAX + 2];
	size_t count;
};

/* Those that the connection of this round was not asked for yet. */
static void claims_pick(struct reviver *v, uint64_t round, struct names *ret)
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
	const char *texts[RESUME_CLAIMS_MAX];
	const struct resume_params params = {.claims = {.items = texts, .count = (uint32_t)names->count}};
	struct message_writer w;
	int r;

	for (size_t i = 0; i < names->count; i++)
		texts[i] = names->texts[i];
	message_write_request(&w, request_next_id(), &form_resume, &params);
	r = connection_call(connection, &w, CALL_TIMEOUT_MS, ret_reply, error);
	message_writer_clear(&w);
	return r;
}

/* taken: gpuwmd counts it on the connection of this round. */
static int claim_settle(struct reviver *v, struct connection *connection, uint64_t round, const char *name,
			bool taken, struct error *error)
{
	struct message_writer w;
	struct claim *claim;
	int r;

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
	if (claim || !taken)
		return 0;
	/* The client gave it up meanwhile, and gpuwmd does not know. */
	message_write_request(&w, request_next_id(), &form_claim_give_up,
			      &(struct claim_give_up_params){.name.text = name});
	r = connection_call(connection, &w, CALL_TIMEOUT_MS, NULL, error);
	message_writer_clear(&w);
	return r == -ENOENT ? 0 : r;
}

static int claims_settle(struct reviver *v, struct connection *connection, uint64_t round,
			 const struct names *names, const struct reply *reply, struct error *error)
{
	struct resume_result result;
	int r = reply_read(reply, &form_resume, &result, error);

	/* An older gpuwmd knows of none. */
	if (r == 0 && result.claims.items && result.claims.count != names->count)
		return error_set(error, -EPROTO, NULL, "resume: %u answers for %zu claims", result.claims.count,
				 names->count);
	for (size_t i = 0; r == 0 && i < names->count; i++) {
		bool taken = result.claims.items && !result.claims.items[i].error;

		r = claim_settle(v, connection, round, names->texts[i], taken, error);
	}
	return r;
}

static int resume_some(struct reviver *v, struct connection *connection, uint64_t round, struct names *names,
		       struct error *error)
{
	struct reply reply;
	int r = 0;

	for (claims_pick(v, round, names); r == 0 && names->count > 0; claims_pick(v, round, names)) {
		r = ask_resume(connection, names, &reply, error);
		if (r < 0)
			break;
		r = claims_settle(v, connection, round, names, &reply, error);
		reply_clear(&reply);
	}
	return r == -ENOSYS || r == -EUCLEAN ? 0 : r;
}

int claims_resume(struct reviver *v, struct connection *connection, uint64_t round, struct error *error)
{
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
	r = resume_some(v, connection, round, names, error);
	free(names);
	return r;
}
