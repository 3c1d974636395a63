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
	if (model->first)
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

static uint64_t *count_of(const struct version *version)
{
	struct registry_counts *counts = &version->model->registry->counts;

	return version_is_nameless(version) ? &counts->nameless : &counts->versions;
}

void version_begin_living(struct version *version)
{
	++*count_of(version);
	version->model->living++;
}

void version_end_living(struct version *version)
{
	--*count_of(version);
	if (--version->model->living == 0)
		version->model->owner = (struct model_owner){0};
}

void model_adopt_owner(struct model *model, const struct model_owner *owner)
{
	if (model->living > 0)
		model->owner = *owner;
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

void registry_find_owners(struct registry *registry)
{
	for (struct model *model = registry->models; model; model = model->hh.next) {
		if (!model->owner.known)
			model->owner = model_oldest(model);
	}
}
