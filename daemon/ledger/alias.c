#include "registry_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static bool is_previous(const char *name)
{
	return strcmp(name, ALIAS_PREVIOUS) == 0;
}

static bool is_current(const char *name)
{
	return strcmp(name, ALIAS_CURRENT) == 0;
}

static bool is_operators(const char *name)
{
	return !is_current(name) && !is_previous(name);
}

struct alias *alias_find(const struct model *model, const char *name)
{
	const struct named *named = named_find(model, name);

	return named ? named->alias : NULL;
}

struct alias *alias_make(struct model *model, const char *name)
{
	struct alias_record *record = calloc(1, sizeof(*record));
	struct named *named = record ? named_take(model, name) : NULL;

	if (!named) {
		free(record);
		return NULL;
	}
	named->alias = &record->alias;
	record->model = model;
	snprintf(record->alias.name, sizeof(record->alias.name), "%s", name);
	LL_APPEND(model->aliases, &record->alias);
	model->alias_count += is_operators(name);
	model->registry->counts.aliases++;
	return &record->alias;
}

static void count_names(struct version *version, const struct alias *alias, int by)
{
	if (version && !is_previous(alias->name))
		version->alias_count += (uint32_t)by;
}

void alias_point(struct alias *alias, struct version *version)
{
	count_names(alias->version, alias, -1);
	count_names(version, alias, 1);
	alias->version = version;
	alias->generation++;
}

void alias_remove(struct model *model, struct alias *alias)
{
	count_names(alias->version, alias, -1);
	LL_DELETE(model->aliases, alias);
	named_drop(model, named_find(model, alias->name));
	model->alias_count -= is_operators(alias->name);
	model->registry->counts.aliases--;
	free(alias); /* the first member of its record */
}

int registry_alias_allowed(const struct registry *registry, const char *model, const char *alias,
			   struct error *error)
{
	const struct model *found = model_find(registry, model);
	const struct named *named = found ? named_find(found, alias) : NULL;
	const char *wrong = name_wrong(alias);

	/* Such a version is freed with its last lease, and an alias would name it still. */
	if (name_is_nameless(model))
		return error_set(error, -EINVAL, "give it a name",
				 "a version without a name can't have an alias");
	if (wrong)
		return error_set(error, -EINVAL, NULL, "the alias %s", wrong);
	if (is_previous(alias))
		return error_set(error, -EINVAL,
				 "to go back to the version that it names: gpuwmctl rollback MODEL",
				 "gpuwmd alone moves the alias \"%s\", when \"%s\" moves", ALIAS_PREVIOUS,
				 ALIAS_CURRENT);
	if (named && named->version && named->version->state != VERSION_FAILED)
		return error_set(error, -EEXIST, "tags and aliases share one name space; take another name",
				 "\"%s\" is a tag of model \"%s\"", alias, model);
	if (found && (!named || !named->alias) && is_operators(alias) &&
	    found->alias_count == ALIASES_PER_MODEL_MAX)
		return error_set(error, -EDQUOT, "remove some",
				 "model \"%s\" has %u aliases, the most that it may have", model,
				 ALIASES_PER_MODEL_MAX);
	return 0;
}

int registry_adopt_alias(struct registry *registry, struct version *version, const char *alias,
			 uint64_t generation, struct error *error)
{
	struct model *model = version->model;
	struct alias *adopted;
	int r = is_previous(alias) ? 0 : registry_alias_allowed(registry, model->name, alias, error);

	if (r < 0)
		return r;
	if (named_find(model, alias))
		return error_set(error, -EEXIST, NULL, "model \"%s\" has an alias \"%s\" already", model->name,
				 alias);
	if (version->state != VERSION_READY || generation == 0)
		return error_set(error, -EINVAL, NULL, "%s@%s of generation %llu names what is %s", model->name,
				 alias, (unsigned long long)generation, version_state_name(version->state));
	adopted = alias_make(model, alias);
	if (!adopted)
		return out_of_memory(error);
	alias_point(adopted, version);
	adopted->generation = generation;
	return 0;
}

int registry_adopt_before(struct registry *registry, struct version *before, const char *alias,
			  struct error *error)
{
	struct alias *adopted = alias_find(before->model, alias);

	assert(before->model->registry == registry && adopted);
	if (!is_operators(alias))
		return error_set(error, -EINVAL, NULL, "\"before\" is not for \"%s\"", alias);
	if (before->state != VERSION_READY)
		return error_set(error, -EINVAL, NULL, "%s@%s named %s before, which is %s",
				 before->model->name, alias, before->tag, version_state_name(before->state));
	adopted->before = before;
	return 0;
}

static int check_expected(const char *model, const char *name, const struct version *old,
			  const struct version_id *expect, struct error *error)
{
	static const struct version_id none;
	char id[VERSION_ID_TEXT];

	if (!expect || version_id_equal(expect, old ? &old->id : &none))
		return 0;
	if (!old)
		return error_set(error, -EBUSY, NULL, "%s@%s names nothing now", model, name);
	hex128_format(old->id.bytes, id);
	return error_set(error, -EBUSY, "look again, then swap from what is there",
			 "%s@%s names %s (version %s) now", model, name, old->tag, id);
}

/* That model's alias may come to name it. */
static int alias_check_target(const char *model, const struct version *to, struct error *error)
{
	if (strcmp(to->model->name, model) != 0)
		return error_set(error, -EINVAL, "an alias stays within its model",
				 "%s@%s is no version of model \"%s\"", to->model->name, to->tag, model);
	if (to->state != VERSION_READY)
		return error_set(error, -EINVAL, "an alias names only what is ready", "%s@%s is %s", model,
				 to->tag, version_state_name(to->state));
	return version_check_sound(to, error);
}

/* `previous` comes first: it is what may fail. */
static int alias_move_to(struct model *model, const char *name, struct alias *alias, struct version *to,
			 struct swap_result *ret)
{
	struct version *old = alias ? alias->version : NULL;

	if (old && is_current(name)) {
		struct alias *previous = alias_find(model, ALIAS_PREVIOUS);
		if (!previous)
			previous = alias_make(model, ALIAS_PREVIOUS);
		if (!previous)
			return -ENOMEM;
		alias_point(previous, old);
	}
	if (!alias)
		alias = alias_make(model, name);
	if (!alias)
		return -ENOMEM;
	alias_point(alias, to);
	if (old && !is_current(name))
		alias->before = old;
	*ret = (struct swap_result){.now = to, .old = old, .generation = alias->generation, .changed = true};
	return 0;
}

int registry_swap_allowed(const struct registry *registry, const char *model, const char *alias,
			  const struct version_id *expect, struct error *error)
{
	struct model *found = model_find(registry, model);
	struct alias *there = found ? alias_find(found, alias) : NULL;
	int r = registry_alias_allowed(registry, model, alias, error);

	return r < 0 ? r : check_expected(model, alias, there ? there->version : NULL, expect, error);
}

int registry_swap(struct registry *registry, const struct alias_move *moved, struct swap_result *ret,
		  struct error *error)
{
	const char *model = moved->model, *alias = moved->alias;
	struct version *to = moved->to;
	struct model *found = model_find(registry, model);
	struct alias *there = found ? alias_find(found, alias) : NULL;
	struct version *old = there ? there->version : NULL;
	char remedy[2 * NAME_BYTES_MAX + 64];
	int r = registry_alias_allowed(registry, model, alias, error);

	if (r == 0 && to)
		r = alias_check_target(model, to, error);
	if (r == 0)
		r = check_expected(model, alias, old, moved->expect, error);
	if (r < 0)
		return r;
	if (!to && !there)
		return error_set(error, -ENOENT, NULL, "model \"%s\" has no alias \"%s\"", model, alias);
	if (!to) {
		*ret = (struct swap_result){.old = old, .changed = true};
		alias_remove(found, there);
		return 0;
	}
	if (to == old) {
		*ret = (struct swap_result){.now = to, .old = to, .generation = there->generation};
		return 0;
	}
	/* Workers that attach by the alias would wait for a promotion, which may find no room: whoever swaps is to know that first. */
	if (!version_is_resident(to)) {
		snprintf(remedy, sizeof(remedy), "gpuwmctl promote %s@%s --wait, then swap", model, to->tag);
		return error_set(error, -EAGAIN, remedy, "%s@%s lies on %s, and not on its devices", model,
				 to->tag, tier_name(to->tier));
	}
	return alias_move_to(found, alias, there, to, ret) < 0 ? out_of_memory(error) : 0;
}

const struct version *registry_alias_before(const struct alias *alias)
{
	const struct alias *previous = NULL;

	if (is_current(alias->name))
		previous = alias_find(((const struct alias_record *)alias)->model, ALIAS_PREVIOUS);
	return previous ? previous->version : alias->before;
}

void registry_forget_before(struct version *version)
{
	struct model *model = version->model;
	struct alias *previous = alias_find(model, ALIAS_PREVIOUS);

	if (previous && previous->version == version)
		alias_remove(model, previous);
	for (struct alias *alias = model->aliases; alias; alias = alias->next)
		if (alias->before == version)
			alias->before = NULL;
}

void registry_remove_aliases(struct registry *registry)
{
	for (struct model *model = registry->models; model; model = model->hh.next) {
		while (model->aliases)
			alias_remove(model, model->aliases);
	}
}

const struct alias *registry_next_alias(const struct registry *registry, const char *model,
					const struct alias *after, const char **ret_model)
{
	const struct model *in = after ? ((const struct alias_record *)after)->model : NULL;
	const struct alias *next = after ? after->next : NULL;

	if (model && !after) {
		in = model_find(registry, model);
		next = in ? in->aliases : NULL;
	}
	/* Models without aliases are passed over. */
	while (!model && !next) {
		in = in ? in->hh.next : registry->models;
		if (!in)
			return NULL;
		next = in->aliases;
	}
	if (next)
		*ret_model = in->name;
	return next;
}
