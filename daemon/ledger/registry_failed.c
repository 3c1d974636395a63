/* Failed versions: a list, the oldest first, of what is told and holds nothing. */
#include "registry_internal.h"
#include "../../base/clock.h"

#include <utlist.h>

static uint32_t *failed_count(const struct version *version)
{
	struct registry *registry = version->model->registry;

	return version_is_nameless(version) ? &registry->failed_nameless_count : &registry->failed_count;
}

struct version *version_list_failed(struct version *version)
{
	struct registry *registry = version->model->registry;
	struct version_record *record = record_of(version), *oldest;

	version->failed_ms = clock_steady_ms();
	version_uncount(version);
	version_charges_end(&record->charges);
	version_end_living(version);
	LL_APPEND2(registry->failed, record, next_failed);
	if (++*failed_count(version) <= FAILED_KEPT_MAX)
		return NULL;
	oldest = registry->failed; /* of those with a name, or of those without, as this one */
	while (version_is_nameless(&oldest->version) != version_is_nameless(version))
		oldest = oldest->next_failed;
	return &oldest->version;
}

struct version *registry_oldest_failed(const struct registry *registry)
{
	return registry->failed ? &registry->failed->version : NULL;
}

void registry_on_forget_failed(struct registry *registry,
			       void (*told)(void *data, const struct version *version), void *data)
{
	registry->on_forget_failed = told;
	registry->on_forget_data = data;
}

void version_unlist_failed(struct version *version)
{
	struct registry *registry = version->model->registry;
	struct version_record *record = record_of(version);

	if (registry->on_forget_failed)
		registry->on_forget_failed(registry->on_forget_data, version);
	LL_DELETE2(registry->failed, record, next_failed);
	--*failed_count(version);
}
