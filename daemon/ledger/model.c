/* Models, the names in each, and their owners. The other files of the registry build on this one. */
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
