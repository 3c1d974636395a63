#include "waiter.h"
#include "audit.h"
#include "clients.h"
#include "../base/hash.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

/* ---- by name ---- */

#define KEY_BYTES (2 * NAME_BYTES_MAX + 8)

struct waiter_name {
	char key[KEY_BYTES]; /* the kind's number, and the name or the id */
	struct waiter *first;
	UT_hash_handle hh;
};

static void key_of(enum wait_kind kind, const struct ref *ref, char key[KEY_BYTES])
{
	char id[VERSION_ID_TEXT];

	if (ref->has_id) {
		hex128_format(ref->id.bytes, id);
		snprintf(key, KEY_BYTES, "%d %s", (int)kind, id);
	} else {
		snprintf(key, KEY_BYTES, "%d %s@%s", (int)kind, ref->model, ref->name);
	}
}

static struct waiter_name *name_find(const struct clients *clients, enum wait_kind kind, const struct ref *ref)
{
	struct waiter_name *name;
	char key[KEY_BYTES];

	key_of(kind, ref, key);
	HASH_FIND_STR(clients->waiter_names, key, name);
	return name;
}

static struct waiter_name *name_add(struct clients *clients, enum wait_kind kind, const struct ref *ref)
{
	struct waiter_name *name = calloc(1, sizeof(*name));

	if (!name)
		return NULL;
	key_of(kind, ref, name->key);
	HASH_ADD_STR(clients->waiter_names, key, name);
	if (name->hh.tbl)
		return name;
	free(name);
	return NULL;
}

int waiter_name_enter(struct waiter *w)
{
	struct clients *clients = w->request.session->client->clients;
	struct waiter_name *name = name_find(clients, w->kind, &w->ref);

	if (!name)
		name = name_add(clients, w->kind, &w->ref);
	if (!name)
		return -ENOMEM;
	w->of_name = name;
	DL_APPEND2(name->first, w, prev_of_name, next_of_name);
	return 0;
}

void waiter_name_leave(struct waiter *w)
{
	struct waiter_name *name = w->of_name;

	if (!name)
		return;
	DL_DELETE2(name->first, w, prev_of_name, next_of_name);
	w->of_name = NULL;
	if (name->first)
		return;
	HASH_DEL(w->request.session->client->clients->waiter_names, name);
	free(name);
}

struct waiter *waiter_name_first(const struct clients *clients, enum wait_kind kind, const struct ref *ref)
{
	const struct waiter_name *name = name_find(clients, kind, ref);

	return name ? name->first : NULL;
}

static void look_at_each(struct clients *clients, enum wait_kind kind, const struct ref *ref,
			 void (*look)(struct waiter *waiter))
{
	for (struct waiter *w = waiter_name_first(clients, kind, ref); w; w = w->next_of_name)
		look(w);
}

void waiter_names_of_version(struct clients *clients, enum wait_kind kind, const struct version *version,
			     void (*look)(struct waiter *waiter))
{
	const char *model = model_name(version->model);
	struct ref ref = {.has_id = true, .id = version->id};
	const struct alias *alias = NULL;

	look_at_each(clients, kind, &ref, look);
	ref.has_id = false;
	snprintf(ref.model, sizeof(ref.model), "%s", model);
	snprintf(ref.name, sizeof(ref.name), "%s", version->tag);
	look_at_each(clients, kind, &ref, look);
	while ((alias = registry_next_alias(clients->ledger->registry, model, alias, &model))) {
		if (alias->version != version && strcmp(alias->name, ALIAS_PREVIOUS) != 0)
			continue;
		snprintf(ref.name, sizeof(ref.name), "%s", alias->name);
		look_at_each(clients, kind, &ref, look);
	}
}

/* ---- waiting ---- */

static bool look_again(struct fair_task *task)
{
	struct waiter *waiter = fair_owner(task, struct waiter, task);

	waiter->wake(waiter, NULL, waiter->expired);
	return false;
}

void waiter_due(struct waiter *waiter)
{
	fair_due(waiter->request.session->share, &waiter->task);
}

static void waiter_on_timer(uv_timer_t *timer)
{
	struct waiter *waiter = timer->data;

	waiter->expired = true;
	waiter_due(waiter);
}

static int charge(const struct request *request, struct quota_charge *ret, struct error *error)
{
	const struct session *session = request->session;

	if (session->client->waiter_count >= REQUESTS_PER_SESSION_MAX)
		return error_set(error, -EDQUOT, "wait for some, or use another connection",
				 "this connection has all %d waiting requests that it may have",
				 REQUESTS_PER_SESSION_MAX);
	return quota_charge(session->client->clients->ledger->quota, session->peer.uid, QUOTA_REQUESTS, ret,
			    error);
}

static struct waiter *waiter_alloc(const struct request *request)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->request = *request;
	w->request.packet = NULL;
	w->request.message = NULL;
	w->request.audit = NULL;
	if (!request->audit || !request->audit->is_late)
		return w;
	/* What is told of the request when it is refused late. */
	w->request.audit = malloc(sizeof(*w->request.audit));
	if (!w->request.audit) {
		free(w);
		return NULL;
	}
	*w->request.audit = *request->audit;
	return w;
}

int waiter_new(const struct request *request, enum wait_kind kind, int64_t wait_ms, waiter_wake_fn *wake,
	       struct waiter **ret_waiter, struct error *error)
{
	struct client *client = request->session->client;
	struct clients *clients = client->clients;
	struct waiter *w = waiter_alloc(request);
	int r;

	if (!w)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = charge(request, &w->charge, error);
	if (r < 0) {
		free(w->request.audit);
		free(w);
		return r;
	}
	w->wake = wake;
	w->task.call = look_again;
	w->kind = kind;
	/* At the end: who waits longest is woken first. */
	DL_APPEND(clients->waiters[kind], w);
	DL_PREPEND2(client->waiters, w, prev_of_session, next_of_session);
	client->waiter_count++;
	clients->waiting++;
	if (wait_ms >= 0) {
		w->timed = true;
		w->timer.data = w;
		uv_timer_init(clients->net->loop, &w->timer);
		uv_timer_start(&w->timer, waiter_on_timer, (uint64_t)wait_ms, 0);
	}
	*ret_waiter = w;
	return 0;
}

static void waiter_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct waiter *waiter_free(struct waiter *w)
{
	struct client *client;

	if (!w)
		return NULL;
	client = w->request.session->client;
	DL_DELETE(client->clients->waiters[w->kind], w);
	DL_DELETE2(client->waiters, w, prev_of_session, next_of_session);
	client->waiter_count--;
	client->clients->waiting--;
	quota_release(&w->charge);
	fair_undue(&w->task);
	waiter_name_leave(w);
	free(w->asked);
	free(w->request.audit);
	if (w->timed)
		uv_close((uv_handle_t *)&w->timer, waiter_on_closed);
	else
		free(w);
	return NULL;
}

void waiters_wake(struct clients *clients, enum wait_kind kind, const struct version *changed)
{
	struct waiter *next;

	if (kind == WAIT_READY && changed) {
		waiter_names_of_version(clients, kind, changed, waiter_due);
		return;
	}
	for (struct waiter *w = clients->waiters[kind]; w; w = next) {
		next = w->next;
		if (kind == WAIT_READY)
			waiter_due(w);
		else
			w->wake(w, changed, false);
	}
}

void waiters_refuse(struct clients *clients, enum wait_kind kind, const struct error *error)
{
	while (clients->waiters[kind]) {
		struct waiter *w = clients->waiters[kind];

		request_refuse(&w->request, error);
		waiter_free(w);
	}
}
