#include "claims.h"
#include "../../../base/clock.h"
#include "../../restart/keeping.h"
#include "../../clients/waiter.h"
#include "../../../proto/wire/messages_look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- who has it -------------------------------------------------------- */

static int name_user(const struct work *work, const struct claim *claim, int code, const char *detail,
		     struct error *error)
{
	return error_set(
		error, code, detail,
		"uid %u claimed %s@%s before gpuwmd was restarted; gpuwmd reserves the name for that uid for another %llu ms",
		(unsigned)claim->uid, claim->name.model, claim->name.name,
		(unsigned long long)clock_due_in_ms(work->claims_until_ms));
}

static int name_holder(const struct work *work, const struct claim *claim, int code, const char *detail,
		       struct error *error)
{
	const struct session *s = claim->holder;

	if (!s)
		return name_user(work, claim, code, detail, error);
	return error_set(error, code, detail, "%s@%s is claimed by session %llu (%s, pid %d, uid %u), which %s",
			 claim->name.model, claim->name.name, (unsigned long long)s->id, s->peer.command,
			 (int)s->peer.pid, (unsigned)s->peer.uid,
			 claim_has_begun(claim) ? "builds it" : "has not begun to build it");
}

int claims_taken(const struct work *work, const struct claim *claim, struct error *error)
{
	return name_holder(work, claim, -ETIMEDOUT, "wait for it", error);
}

int claims_check(const struct work *work, const struct session *session, const struct ref *name,
		 struct error *error)
{
	const struct claim *claim = claim_find(work->ledger->claims, name);

	if (!claim || claim->holder == session)
		return 0;
	return name_holder(work, claim, -EBUSY, "claim it, and wait for what is built", error);
}

int claims_elect(struct work *work, struct session *session, const struct ref *name, struct error *error)
{
	struct claim *claim;
	int r = claim_take(work->ledger->claims, name,
			   &(struct claim_holder){session, &session->client->claims, work->ledger->quota,
						  session->peer.uid},
			   &claim, error);

	if (r == 0)
		claims_settle(work);
	return r;
}

/* ---- who is next ------------------------------------------------------- */

/* Those who wait for it look again, until one of them is to build it: there is nothing new for the rest. */
static void turn(struct work *work, const struct ref *name)
{
	struct waiter *w = waiter_name_first(work->clients, WAIT_CLAIM, name), *next;

	for (; w && !claim_find(work->ledger->claims, name); w = next) {
		next = w->next_of_name;
		w->wake(w, NULL, false);
	}
}

/* ---- after a restart ---------------------------------------------------- */

/* Whoever waits for a name that was not taken back is elected. */
static void end_reserved(struct work *work)
{
	struct claim *claim = claim_next(work->ledger->claims, NULL), *next;

	for (; claim; claim = next) {
		const struct ref name = claim->name;

		next = claim_next(work->ledger->claims, claim);
		if (claim->holder)
			continue;
		claim_end(work->ledger->claims, claim);
		turn(work, &name);
	}
}

static void on_grace_over(uv_timer_t *timer)
{
	struct work *work = timer->loop->data;

	work->claims_until_ms = 0;
	end_reserved(work);
}

void claims_begin_grace(struct work *work)
{
	uint64_t grace = work->config->grace_ms;

	if (claim_count(work->ledger->claims) == 0)
		return;
	work->claims_until_ms = clock_steady_ms() + grace;
	uv_update_time(work->loop);
	uv_timer_start(&work->claims_timer, on_grace_over, grace, 0);
}

int claims_take_back(struct work *work, struct session *session, struct claim *claim, struct error *error)
{
	if (claim->uid != session->peer.uid)
		return name_user(work, claim, -EACCES, "claim it, and wait", error);
	claim_give(work->ledger->claims, claim, session, &session->client->claims);
	return 0;
}

void claims_settle(struct work *work)
{
	if (work->claims_saved == claim_changes(work->ledger->claims))
		return;
	work->claims_saved = claim_changes(work->ledger->claims);
	keeping_save(work->keeping);
}

/* ---- its course -------------------------------------------------------- */

void claims_begun(struct work *work, const struct session *session, const struct ref *name,
		  const struct version_id *publish)
{
	struct claim *claim = claim_find(work->ledger->claims, name);

	if (!claim || claim->holder != session)
		return;
	claim_begin(work->ledger->claims, claim, publish);
	claims_settle(work);
}

void claims_end(struct work *work, struct claim *claim)
{
	const struct ref name = claim->name;

	claim_end(work->ledger->claims, claim);
	turn(work, &name);
}

void claims_concluded(struct work *work, const struct version *version)
{
	struct ref name = {0};
	struct claim *claim;
	struct waiter *w;

	snprintf(name.model, sizeof(name.model), "%s", model_name(version->model));
	snprintf(name.name, sizeof(name.name), "%s", version->tag);
	claim = claim_find(work->ledger->claims, &name);
	/* A load that failed beside the claim changes nothing for its holder. */
	if (claim && version->state == VERSION_FAILED && !version_id_equal(&claim->publish, &version->publish))
		return;
	if (claim)
		claim_end(work->ledger->claims, claim);
	if (version->state == VERSION_FAILED) {
		turn(work, &name);
		return;
	}
	/* It is ready: each gets its handles, in its user's share of time. */
	for (w = waiter_name_first(work->clients, WAIT_CLAIM, &name); w; w = w->next_of_name)
		waiter_due(w);
}

void claims_drop(struct work *work, struct session *session)
{
	while (session->client->claims) {
		if (work->net->stopping && claim_is_kept(session->client->claims))
			claim_leave(work->ledger->claims, session->client->claims);
		else
			claims_end(work, session->client->claims);
	}
}

/* ---- telling ----------------------------------------------------------- */

void put_claims_of(struct message_writer *w, const struct session *session)
{
	message_begin_array(w, "claims");
	for (const struct claim *claim = session->client->claims; claim; claim = claim->next_of_holder) {
		record_put_map(w, NULL, &claim_told_record,
			       &(struct claim_told){claim->name.model, claim->name.name, claim->since_ms,
						    claim_has_begun(claim)});
	}
	message_end(w);
}

static void put_claim(struct message_writer *w, const struct claim *claim)
{
	const struct session *holder = claim->holder;
	const uint64_t pid = holder ? peer_pid(&holder->peer) : 0;

	record_put_map(w, NULL, &claim_listed_record,
		       &(struct claim_listed){
			       .model = claim->name.model,
			       .tag = claim->name.name,
			       .uid = claim->uid,
			       .session = holder ? &holder->id : NULL,
			       .pid = holder ? &pid : NULL,
			       .command = holder ? holder->peer.command : NULL,
			       .since_ms = claim->since_ms,
			       .begun = claim_has_begun(claim),
		       });
}

void put_claims(struct message_writer *w, struct session *session, const char *model)
{
	struct claim *claim = NULL;

	message_begin_array(w, "claims");
	while ((claim = claim_next(session->client->clients->ledger->claims, claim))) {
		if ((!model || strcmp(claim->name.model, model) == 0) && access_sees_claim(session, claim))
			put_claim(w, claim);
	}
	message_end(w);
}
