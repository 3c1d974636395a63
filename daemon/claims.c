#include "claims.h"
#include "clock.h"
#include "keeping.h"
#include "methods.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- who has it -------------------------------------------------------- */

static int name_holder(const struct claim *claim, int code, const char *detail, struct error *error)
{
	const struct session *s = claim->holder;

	return error_set(error, code, detail, "%s@%s is claimed by session %llu (%s, pid %d, uid %u), which %s",
			 claim->name.model, claim->name.name, (unsigned long long)s->id, s->peer.command,
			 (int)s->peer.pid, (unsigned)s->peer.uid,
			 claim_has_begun(claim) ? "builds it" : "has not begun to build it");
}

int claims_taken(const struct claim *claim, struct error *error)
{
	return name_holder(claim, -ETIMEDOUT, "wait for it", error);
}

int claims_check(const struct server *server, const struct session *session, const struct ref *name,
		 struct error *error)
{
	const struct claim *claim = claim_find(server->claims, name);

	if (!claim || claim->holder == session)
		return 0;
	return name_holder(claim, -EBUSY, "claim it, and wait for what is built", error);
}

int claims_elect(struct session *session, const struct ref *name, struct error *error)
{
	struct server *server = session->server;
	struct claim *claim;

	return claim_take(server->claims, name, session, &session->claims, server->quota, session->peer.uid,
			  &claim, error);
}

/* ---- after a restart ---------------------------------------------------- */

static void on_grace_over(uv_timer_t *timer)
{
	struct server *server = timer->loop->data;

	server->claims_until_ms = 0;
	waiters_wake(server, WAIT_CLAIM, NULL);
}

void claims_begin_grace(struct server *server)
{
	uint64_t grace = server->config->grace_ms;

	/* The first with its ledger has nobody who could come back. */
	if (keeping_epoch(server->keeping) <= 1 || grace == 0)
		return;
	server->claims_until_ms = clock_steady_ms() + grace;
	uv_update_time(&server->loop);
	uv_timer_start(&server->claims_timer, on_grace_over, grace, 0);
}

uint64_t claims_grace_ms(const struct server *server)
{
	return clock_left_ms(server->claims_until_ms);
}

/* ---- its course -------------------------------------------------------- */

void claims_begun(struct server *server, const struct session *session, const struct ref *name,
		  const struct version_id *publish)
{
	struct claim *claim = claim_find(server->claims, name);

	if (claim && claim->holder == session)
		claim_begin(claim, publish);
}

static bool waits_for(const struct waiter *waiter, const struct ref *name)
{
	return strcmp(waiter->ref.name, name->name) == 0 && strcmp(waiter->ref.model, name->model) == 0;
}

/* Those who wait for it look again, until one of them is to build it: there is nothing new for the rest. */
static void turn(struct server *server, const struct ref *name)
{
	struct waiter *next;

	for (struct waiter *w = server->waiters[WAIT_CLAIM]; w && !claim_find(server->claims, name); w = next) {
		next = w->next;
		if (waits_for(w, name))
			w->wake(w, NULL, false);
	}
}

void claims_end(struct server *server, struct claim *claim)
{
	const struct ref name = claim->name;

	claim_end(server->claims, claim);
	turn(server, &name);
}

void claims_concluded(struct server *server, const struct version *version)
{
	struct ref name = {0};
	struct claim *claim;

	snprintf(name.model, sizeof(name.model), "%s", model_name(version->model));
	snprintf(name.name, sizeof(name.name), "%s", version->tag);
	claim = claim_find(server->claims, &name);
	/* A load that failed beside the claim changes nothing for its holder. */
	if (claim && version->state == VERSION_FAILED && !version_id_equal(&claim->publish, &version->publish))
		return;
	if (claim)
		claim_end(server->claims, claim);
	turn(server, &name);
}

void claims_drop(struct session *session)
{
	while (session->claims)
		claims_end(session->server, session->claims);
}

/* ---- telling ----------------------------------------------------------- */

static void put_claim(struct message_writer *w, const struct claim *claim)
{
	message_put_text(w, "model", claim->name.model);
	message_put_text(w, "tag", claim->name.name);
	message_put_u64(w, "since_ms", claim->since_ms);
	message_put_bool(w, "begun", claim_has_begun(claim));
}

void put_claims_of(struct message_writer *w, const struct session *session)
{
	message_begin_array(w, "claims");
	for (const struct claim *claim = session->claims; claim; claim = claim->next_of_holder) {
		message_begin_map(w, NULL);
		put_claim(w, claim);
		message_end(w);
	}
	message_end(w);
}

void put_claims(struct message_writer *w, const struct server *server, const char *model)
{
	const struct claim *claim = NULL;

	message_begin_array(w, "claims");
	while ((claim = claim_next(server->claims, claim))) {
		const struct session *s = claim->holder;

		if (model && strcmp(claim->name.model, model) != 0)
			continue;
		message_begin_map(w, NULL);
		put_claim(w, claim);
		message_put_u64(w, "session", s->id);
		message_put_u64(w, "pid", s->peer.pid > 0 ? (uint64_t)s->peer.pid : 0);
		message_put_u64(w, "uid", s->peer.uid);
		message_put_text(w, "command", s->peer.command);
		message_end(w);
	}
	message_end(w);
}
