#include "revoked_internal.h"
#include "leases.h"
#include "unparks.h"
#include "../../../base/clock.h"
#include "../../base/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- making ---- */

struct revoked_table *revoked_table_new(struct work *work)
{
	struct revoked_table *table = calloc(1, sizeof(*table));

	if (table)
		table->work = work;
	return table;
}

static struct revoked_holder *holder_of(struct revoked_table *table, struct session *session)
{
	struct revoked_holder *holder = session->client->revoked;

	if (holder)
		return holder;
	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return NULL;
	holder->work = table->work;
	holder->session = session;
	holder->session_id = session->id;
	holder->session_since_ms = session->since_ms;
	holder->peer = session->peer;
	holder->peer.pidfd = -1;
	holder->kind = session->kind;
	snprintf(holder->name, sizeof(holder->name), "%s", session->client->name);
	holder->untold_end = &holder->untold;
	DL_PREPEND(table->holders, holder);
	session->client->revoked = holder;
	return holder;
}

static struct of_version *of_version(const struct version *version)
{
	struct of_version *of = version->revoked ? version->revoked->of : calloc(1, sizeof(*of));

	if (!of)
		return NULL;
	if (of->uses++ == 0) {
		of->id = version->id;
		snprintf(of->model, sizeof(of->model), "%s", model_name(version->model));
		snprintf(of->tag, sizeof(of->tag), "%s", version->tag);
		of->owner = model_owner(version->model);
	}
	return of;
}

static void of_version_drop(struct of_version *of)
{
	if (of && --of->uses == 0)
		free(of);
}

static void unlink_version(struct revoked *revoked)
{
	if (!revoked->version)
		return;
	DL_DELETE2(revoked->version->revoked, revoked, prev_of_version, next_of_version);
	revoked->version = NULL;
}

/* ---- who pays ---- */

/* A user whose process maps the part, the one that pays already if it does. NULL: only operators' processes do. */
static const uid_t *find_payer(const struct shared_charge *shared)
{
	const uid_t *payer = NULL;

	for (const struct revoked *r = shared->mapped_by; r; r = r->next_of_shared) {
		if (r->holder->kind == SESSION_ADMIN)
			continue;
		if (!payer || shared_charge_is_paid_by(shared, r->holder->peer.uid))
			payer = &r->holder->peer.uid;
		if (shared_charge_is_paid_by(shared, *payer))
			break;
	}
	return payer;
}

/* What an operator took away is charged to a user who can give it back. */
static void repay(struct shared_charge *shared)
{
	const uid_t *payer = find_payer(shared);

	if (!payer || !shared_charge_is_paid_by(shared, *payer))
		shared_charge_repay(shared, payer);
}

static void list_shared(struct revoked *revoked, struct shared_charge *shared)
{
	struct revoked *first = shared->mapped_by;

	DL_APPEND2(first, revoked, prev_of_shared, next_of_shared);
	shared->mapped_by = first;
}

/* The last one gives the charge back. */
static void unlist_shared(struct revoked *revoked)
{
	struct shared_charge *shared = revoked->shared;
	struct revoked *first = shared->mapped_by;

	if (!revoked->prev_of_shared)
		return;
	DL_DELETE2(first, revoked, prev_of_shared, next_of_shared);
	revoked->prev_of_shared = NULL;
	shared->mapped_by = first;
	if (first && shared_charge_is_paid_by(shared, revoked->holder->peer.uid))
		repay(shared);
}

/* ---- ending ---- */

void revoked_end(struct revoked *revoked)
{
	struct revoked_table *table = revoked->holder->work->revoked;

	HASH_DEL(table->by_id, revoked);
	table->count--;
	DL_DELETE2(revoked->holder->first, revoked, prev_of_holder, next_of_holder);
	unlink_version(revoked);
	if (revoked->shared) {
		unlist_shared(revoked);
		shared_charge_unmap(revoked->shared);
		work_later(revoked->holder->work, LATER_ROOM);
	}
	if (revoked->room)
		work_later(revoked->holder->work, LATER_ROOM);
	room_free(revoked->room);
	of_version_drop(revoked->of);
	quota_release(&revoked->charge);
	free(revoked);
}

void revoked_holder_end(struct revoked_holder *holder)
{
	if (holder->session)
		holder->session->client->revoked = NULL;
	revoked_unwatch(holder);
	DL_DELETE(holder->work->revoked->holders, holder);
	free(holder);
}

void revoked_holder_end_all(struct revoked_holder *holder)
{
	while (holder->first)
		revoked_end(holder->first);
	revoked_holder_end(holder);
}

struct revoked_table *revoked_table_free(struct revoked_table *table)
{
	if (!table)
		return NULL;
	while (table->holders)
		revoked_holder_end_all(table->holders);
	free(table);
	return NULL;
}

/* ---- revoking ---- */

/* What is revoked, but for where it is listed. */
static struct revoked *revoked_new(const struct lease *lease)
{
	const struct replica *replica = &lease->version->replicas[lease->replica];
	struct revoked *revoked = calloc(1, sizeof(*revoked));

	if (!revoked)
		return NULL;
	*revoked = (struct revoked){
		.id = lease->id,
		.of = of_version(lease->version),
		.device = replica->device,
		.replica = lease->replica,
		.rank = replica->rank,
		.bytes = replica->bytes,
		.since_ms = lease->since_ms,
		.revoked_ms = clock_wall_ms(),
	};
	if (revoked->of)
		return revoked;
	free(revoked);
	return NULL;
}

/* True: it is in the table. */
static bool revoked_insert(struct revoked_table *table, struct revoked *revoked, struct revoked_holder *holder,
			   struct version *version)
{
	HASH_ADD(hh, table->by_id, id, sizeof(revoked->id), revoked);
	if (!revoked->hh.tbl)
		return false;
	table->count++;
	revoked->holder = holder;
	DL_PREPEND2(holder->first, revoked, prev_of_holder, next_of_holder);
	*holder->untold_end = revoked;
	holder->untold_end = &revoked->next_untold;
	revoked->version = version;
	DL_PREPEND2(version->revoked, revoked, prev_of_version, next_of_version);
	return true;
}

int revoked_add(struct work *work, struct lease *lease, struct error *error)
{
	struct session *session = lease->holder;
	uint64_t request;
	bool is_withdrawn;
	struct revoked_holder *holder = holder_of(work->revoked, session);
	struct revoked *revoked = holder ? revoked_new(lease) : NULL;

	if (!revoked || !revoked_insert(work->revoked, revoked, holder, lease->version)) {
		if (revoked)
			of_version_drop(revoked->of);
		free(revoked);
		if (holder && !holder->first)
			revoked_holder_end(holder);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	revoked->charge = lease->charge;
	lease->charge = (struct quota_charge){0};
	unparks_end(work, lease, false);
	revoked->room = lease->room; /* its process goes on to take it */
	lease->room = NULL;
	is_withdrawn = session_withdraw(session, lease->id, &request);
	/* The request for a copy that is being made still waits, and is refused by its waiter. */
	revoked->unsent = is_withdrawn || (lease->copy && lease->copy->state == COPY_FILLING);
	if (lease->copy || lease->parked) /* what is mapped is the copy, or nothing */
		unlink_version(revoked);
	if (lease->copy)
		revoked->shared = shared_charge_map(lease->copy->charge);
	leases_end(work, lease);
	metrics_count(work->net->metrics, METRIC_LEASES_REVOKED, 1);
	if (is_withdrawn) {
		struct request unsent = {.session = session, .id = request, .form = &form_get_handles};
		struct error why;

		error_set(&why, -ESTALE, "ask again", "the lease was revoked before its descriptors were sent");
		request_refuse(&unsent, &why);
	}
	return 0;
}

/* ---- given back ---- */

static struct revoked *revoked_by_id(const struct work *work, uint64_t id)
{
	struct revoked *found;

	HASH_FIND(hh, work->revoked->by_id, &id, sizeof(id), found);
	return found;
}

bool revoked_find(const struct work *work, uint64_t lease)
{
	return revoked_by_id(work, lease) != NULL;
}

/* A process that connected again: while it lives nobody else in gpuwmd's PID namespace has its number, and those of
 * other namespaces have none. */
static bool same_process(const struct revoked_holder *holder, const struct session *session)
{
	return !holder->session && holder->peer.pid > 0 && holder->peer.pid == session->peer.pid &&
	       holder->peer.uid == session->peer.uid;
}

bool revoked_release(struct work *work, const struct session *session, uint64_t lease)
{
	struct revoked *revoked = revoked_by_id(work, lease);
	struct revoked_holder *holder = revoked ? revoked->holder : NULL;

	if (!revoked || (holder->session != session && !same_process(holder, session)))
		return false;
	revoked_end(revoked);
	if (!holder->first)
		revoked_holder_end(holder);
	return true;
}

void revoked_leave(struct session *session)
{
	struct revoked_holder *holder = session->client->revoked;

	if (!holder)
		return;
	session->client->revoked = NULL;
	holder->session = NULL;
	if (session->dead || !revoked_watch(holder, &session->peer))
		revoked_holder_end_all(holder);
}

void revoked_keep(struct version *version, uint32_t replica, struct shared_charge *shared)
{
	struct revoked *revoked = version->revoked, *next;

	for (; revoked; revoked = next) {
		next = revoked->next_of_version;
		if (revoked->replica != replica)
			continue;
		unlink_version(revoked);
		revoked->shared = shared_charge_map(shared);
		if (shared)
			list_shared(revoked, shared);
	}
	if (shared && shared->mapped_by)
		repay(shared);
}

#define MAPPERS_NAMED 3 /* so that an error's detail has room for the rest */

void revoked_name_mappers(const struct work *work, const struct device *device, char *text, size_t size)
{
	size_t used = strlen(text);
	unsigned named = 0;

	for (const struct revoked_holder *holder = work->revoked->holders; holder && used < size;
	     holder = holder->next) {
		const struct revoked *r = holder->first;

		while (r && (!r->shared || r->device != device))
			r = r->next_of_holder;
		if (!r)
			continue;
		if (named++ == MAPPERS_NAMED) {
			snprintf(text + used, size - used, " and others");
			return;
		}
		used += (size_t)snprintf(text + used, size - used, "%s%s (pid %d, uid %u)",
					 named == 1 ? ": " : ", ", holder->peer.command, (int)holder->peer.pid,
					 (unsigned)holder->peer.uid);
	}
}

uint64_t revoked_count(const struct work *work)
{
	return work->revoked->count;
}
