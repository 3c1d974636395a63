/* What a reference names, for whom. */
#include "registry_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
