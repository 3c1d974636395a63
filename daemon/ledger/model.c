/* Models, the names in each, their owners, and what a reference names. The other files of the registry build on this one. */
#include "registry_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int out_of_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

/* ---- models ---- */

struct model *model_find(const struct registry *registry, const char *name)
{
	struct model *model;

	HASH_FIND_STR(registry->models, name, model);
	return model;
}

static int model_order(const struct model *a, const struct model *b)
{
	return strcmp(a->name, b->name);
}

struct model *model_find_or_add(struct registry *registry, const char *name)
{
	struct model *model = model_find(registry, name);

	if (model)
		return model;
	model = calloc(1, sizeof(*model));
	if (!model)
		return NULL;
	model->registry = registry;
	snprintf(model->name, sizeof(model->name), "%s", name);
	HASH_ADD_KEYPTR_INORDER(hh, registry->models, model->name, strlen(model->name), model, model_order);
	if (!model->hh.tbl) {
		free(model);
		return NULL;
	}
	return model;
}

void model_drop_unused(struct model *model)
{
	if (model->first || model->is_reserved)
		return;
	HASH_DEL(model->registry->models, model);
	free(model);
}

const char *model_name(const struct model *model)
{
	return model->name;
}

struct rule_cache *model_rule(struct model *model)
{
	return &model->rule;
}

struct model *registry_model(const struct registry *registry, const char *name)
{
	return model_find(registry, name);
}

struct model *registry_next_model(const struct registry *registry, const struct model *after)
{
	return after ? after->hh.next : registry->models;
}

/* ---- names ---- */

struct named *named_find(const struct model *model, const char *name)
{
	struct named *named;

	HASH_FIND_STR(model->names, name, named);
	return named;
}

struct named *named_take(struct model *model, const char *name)
{
	struct named *named = named_find(model, name);

	if (named) {
		record_of(named->version)->named = NULL;
		named->version = NULL;
		return named;
	}
	named = calloc(1, sizeof(*named));
	if (!named)
		return NULL;
	snprintf(named->name, sizeof(named->name), "%s", name);
	HASH_ADD_STR(model->names, name, named);
	if (!named->hh.tbl) {
		free(named);
		return NULL;
	}
	return named;
}

void named_drop(struct model *model, struct named *named)
{
	HASH_DEL(model->names, named);
	free(named);
}

/* ---- owners ---- */

struct model_owner model_owner(const struct model *model)
{
	return model->owner;
}

bool version_is_nameless(const struct version *version)
{
	return name_is_nameless(version->model->name);
}

static uint64_t *version_state_count(const struct version *version)
{
	struct registry_counts *counts = &version->model->registry->counts;

	return version_is_nameless(version) ? &counts->nameless : &counts->versions;
}

void version_begin_living(struct version *version)
{
	++*version_state_count(version);
	version->model->living++;
}

void version_end_living(struct version *version)
{
	--*version_state_count(version);
	if (--version->model->living == 0 && !version->model->is_reserved)
		version->model->owner = (struct model_owner){0};
}

int registry_adopt_owner(struct registry *registry, const char *name, const struct model_owner *owner,
			 struct error *error)
{
	struct model *model = model_find_or_add(registry, name);

	if (!model)
		return out_of_memory(error);
	model->is_reserved = model->living == 0;
	model->owner = *owner;
	return 0;
}

bool model_is_reserved(const struct model *model)
{
	return model->is_reserved;
}

void registry_note_unnamed(struct registry *registry)
{
	registry->has_unnamed = true;
}

bool registry_has_unnamed(const struct registry *registry)
{
	return registry->has_unnamed;
}

struct model_owner model_oldest(const struct model *model)
{
	const struct version *oldest = NULL;

	for (const struct version *version = model->first; version; version = version->next_in_model) {
		if (version->freeing || (version->state != VERSION_READY && version->state != VERSION_RETIRING))
			continue;
		if (!oldest || version->ready_ms < oldest->ready_ms)
			oldest = version;
	}
	return (struct model_owner){.known = oldest,
				    .by_operator = oldest && oldest->by_operator,
				    .uid = oldest ? oldest->owner : 0};
}

bool model_owner_equal(const struct model_owner *a, const struct model_owner *b)
{
	return a->known == b->known && a->by_operator == b->by_operator && a->uid == b->uid;
}

/* ---- what a reference names ---- */

/* An error that names what exists lists at most NAMES_SHOWN names, and looks at NAMES_LOOKED_AT at most: the cost of one
 * user's request must not grow with what other users have. */
#define NAMES_SHOWN 8
#define NAMES_LOOKED_AT 64
struct name_list {
	char text[TEXT_BYTES_MAX + 1];
	size_t used;
	unsigned shown, looked_at;
	bool more;
};

/* False: it is enough. */
static bool name_list_add(struct name_list *list, const char *name, bool seen)
{
	size_t room = sizeof(list->text) - list->used;
	int added;

	list->more = ++list->looked_at > NAMES_LOOKED_AT || (seen && list->shown == NAMES_SHOWN);
	if (list->more || !seen)
		return !list->more;
	added = snprintf(list->text + list->used, room, "%s%s", list->shown++ ? ", " : "there are ", name);
	list->used += (size_t)added < room ? (size_t)added : room - 1;
	return true;
}

static const char *name_list_end(struct name_list *list)
{
	if (list->shown == 1 && !list->more) {
		memmove(list->text + strlen("there is "), list->text + strlen("there are "),
			list->used - strlen("there are ") + 1);
		memcpy(list->text, "there is ", strlen("there is "));
	}
	if (list->more && list->shown)
		snprintf(list->text + list->used, sizeof(list->text) - list->used, " and more");
	return list->text;
}

static bool sees(const struct model_view *view, struct model *model)
{
	return !view || view->sees(view->data, model);
}

static int no_model(const struct registry *registry, const struct model_view *view, const char *name,
		    struct error *error)
{
	struct name_list list = {0};
	struct model *model = registry->models;

	if (!error)
		return -ENOENT;
	while (model && name_list_add(&list, model->name, !name_is_nameless(model->name) && sees(view, model)))
		model = model->hh.next;
	return error_set(error, -ENOENT, name_list_end(&list), "no model \"%s\"", name);
}

static int no_name(const struct model *model, const char *name, struct error *error)
{
	struct name_list list = {0};
	const struct named *named = model->names;

	if (!error)
		return -ENOENT;
	if (!model->first)
		return error_set(
			error, -ENOENT, "gpuwmctl status says why; its owner may load or publish it again",
			"model \"%s\" has no version: those that it had did not come back", model->name);
	while (named && name_list_add(&list, named->name, true))
		named = named->hh.next;
	return error_set(error, -ENOENT, name_list_end(&list), "model \"%s\" has no tag or alias \"%s\"",
			 model->name, name);
}

static int find_by_id(const struct registry *registry, const struct model_view *view,
		      const struct version_id *id, struct version **ret_version, struct error *error)
{
	struct version_record *record;

	HASH_FIND(by_id, registry->by_id, id, sizeof(*id), record);
	if (!record || !sees(view, record->version.model)) {
		char text[VERSION_ID_TEXT];
		hex128_format(id->bytes, text);
		return error_set(error, -ENOENT, "it was freed, or never was", "no version %s", text);
	}
	*ret_version = &record->version;
	return 0;
}

int registry_model_in(const struct registry *registry, const struct model_view *view, const char *name,
		      struct model **ret_model, struct error *error)
{
	struct model *model = model_find(registry, name);

	if (!model || !sees(view, model))
		return no_model(registry, view, name, error);
	*ret_model = model;
	return 0;
}

int registry_find(const struct registry *registry, const struct ref *ref, struct version **ret_version,
		  uint64_t *ret_generation, struct error *error)
{
	return registry_find_in(registry, NULL, ref, ret_version, ret_generation, error);
}

int registry_find_in(const struct registry *registry, const struct model_view *view, const struct ref *ref,
		     struct version **ret_version, uint64_t *ret_generation, struct error *error)
{
	struct model *model;
	const struct named *named;
	int r;

	if (ref->has_id) {
		r = find_by_id(registry, view, &ref->id, ret_version, error);
		if (r == 0)
			*ret_generation = 0;
		return r;
	}
	r = registry_model_in(registry, view, ref->model, &model, error);
	if (r < 0)
		return r;
	named = named_find(model, ref->name);
	if (!named)
		return no_name(model, ref->name, error);
	*ret_version = named->alias ? named->alias->version : named->version;
	*ret_generation = named->alias ? named->alias->generation : 0;
	return 0;
}

struct version *registry_by_publish(const struct registry *registry, const struct version_id *publish)
{
	struct version_record *record;

	HASH_FIND(by_publish, registry->by_publish, publish, sizeof(*publish), record);
	return record ? &record->version : NULL;
}

struct version *registry_next_version(const struct registry *registry, const char *model, struct version *after)
{
	const struct model *next;

	if (after && after->next_in_model)
		return after->next_in_model;
	if (model)
		next = after ? NULL : model_find(registry, model);
	else
		next = after ? after->model->hh.next : registry->models;
	while (!model && next && !next->first) /* it is reserved */
		next = next->hh.next;
	return next ? next->first : NULL;
}
