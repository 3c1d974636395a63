/* A version's moves from state to state, with what they do to aliases; and the end of the registry. */
#include "registry_internal.h"
#include "../../base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ready ---- */

/* Whether `current` may name it without being asked for. */
static bool is_for_current(const struct version *version)
{
	return !version->cache.cached && !version_is_nameless(version);
}

static bool version_takes_current(const struct version *new)
{
	if (!is_for_current(new) || alias_find(new->model, ALIAS_CURRENT))
		return false;
	for (const struct version *version = new->model->first; version; version = version->next_in_model) {
		if (version->state == VERSION_READY && is_for_current(version))
			return false;
	}
	return true;
}

int registry_ready(struct registry *registry, struct version *version, bool *ret_current, struct error *error)
{
	bool current = version_takes_current(version);

	assert(version->model->registry == registry);
	if (version->state != VERSION_CHECKING || !version_complete(version))
		return error_set(error, -EINVAL, NULL, "%s@%s is %s and not complete", version->model->name,
				 version->tag, version_state_name(version->state));
	if (current) {
		struct alias *alias = alias_make(version->model, ALIAS_CURRENT);
		if (!alias)
			return out_of_memory(error);
		alias_point(alias, version);
	}
	version_move(version, VERSION_READY);
	if (!version->model->owner.known)
		version->model->owner = (struct model_owner){
			.known = true, .by_operator = version->by_operator, .uid = version->owner};
	version->model->is_reserved = false;
	version->ready_ms = version->resident_ms = clock_wall_ms();
	*ret_current = current;
	return 0;
}

/* ---- failed ---- */

void registry_fail(struct registry *registry, struct version *version, const struct error *reason)
{
	assert(version->model->registry == registry);
	version_move(version, VERSION_FAILED);
	version->error = *reason;
	version_keep_failed(version);
}

/* ---- retiring ---- */

static int still_named(const struct version *version, struct error *error)
{
	char names[TEXT_BYTES_MAX + 1] = "move or remove first: ";
	size_t used = strlen(names);
	const char *comma = "";

	for (const struct alias *alias = version->model->aliases; alias; alias = alias->next) {
		if (alias->version != version || strcmp(alias->name, ALIAS_PREVIOUS) == 0)
			continue;
		int added = snprintf(names + used, sizeof(names) - used, "%s%s", comma, alias->name);
		if ((size_t)added >= sizeof(names) - used)
			break;
		used += (size_t)added;
		comma = ", ";
	}
	return error_set(error, -EBUSY, names, "%s@%s is named by %u alias%s", version->model->name,
			 version->tag, version->alias_count, version->alias_count == 1 ? "" : "es");
}

int registry_retire(struct registry *registry, struct version *version, struct error *error)
{
	assert(version->model->registry == registry);
	if (version->state == VERSION_RETIRING)
		return 0;
	if (version->state != VERSION_READY)
		return error_set(error, -EINVAL,
				 version->state == VERSION_FAILED
					 ? "only what is ready retires; remove it instead (gpuwmctl rm)"
					 : "only what is ready retires; cancel its job or publish instead",
				 "%s@%s is %s", version->model->name, version->tag,
				 version_state_name(version->state));
	if (version->alias_count > 0)
		return still_named(version, error);
	registry_forget_before(version);
	version_move(version, VERSION_RETIRING);
	version->gave_name_up = version->cache.cached;
	if (version->gave_name_up && record_of(version)->named) {
		named_drop(version->model, record_of(version)->named);
		record_of(version)->named = NULL;
	}
	return 0;
}

/* ---- freed ---- */

void registry_remove(struct registry *registry, struct version *version)
{
	assert(version->model->registry == registry && version_unused(version));
	version_move(version, VERSION_FREED);
	version_forget(version);
}

struct registry *registry_free(struct registry *registry)
{
	if (!registry)
		return NULL;
	registry_remove_aliases(registry);
	registry->on_forget_failed = NULL;
	while (registry->models) {
		struct model *model = registry->models;
		struct version *version = model->first;

		model->is_reserved = false;
		while (version && version->leases)
			lease_release(registry, version->leases);
		if (version)
			version_forget(version);
		else
			model_drop_unused(model);
	}
	free(registry->lease_buckets);
	free(registry);
	return NULL;
}
