#include "waiter.h"
#include "../base/hash.h"
#include "clients.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

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
