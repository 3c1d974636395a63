#include "companion.h"
#include "registry_internal.h"

#include "../../base/limits.h"

#include <errno.h>
#include <string.h>

static bool is_set(const struct version_id *id)
{
	return !version_id_equal(id, &(struct version_id){0});
}

bool version_is_companion(const struct version *version)
{
	return is_set(&version->cache.companion_of);
}

/* NULL: the model has none of this id. */
static struct version *find(const struct registry *registry, const char *model, const struct version_id *id)
{
	struct version *version = NULL;

	do
		version = registry_next_version(registry, model, version);
	while (version && !version_id_equal(&version->id, id));
	return version;
}

bool companion_is_left(const struct version *version)
{
	const struct version *other;

	if (!version_is_companion(version))
		return false;
	other = find(version->model->registry, model_name(version->model), &version->cache.companion_of);
	return !other || other->state == VERSION_FAILED;
}

/* Of all companions that the version has, and of those that are being made. */
static uint64_t companions_bytes(const struct registry *registry, const char *model,
				 const struct version_id *id)
{
	struct version *version = NULL;
	uint64_t bytes = 0;

	while ((version = registry_next_version(registry, model, version))) {
		if (!version_id_equal(&version->cache.companion_of, id) || version->state == VERSION_FAILED)
			continue;
		for (uint32_t i = 0; i < version->replica_count; i++)
			bytes += version->replicas[i].checked ? version->replicas[i].bytes
							      : version->replicas[i].charge.bytes;
	}
	return bytes;
}

int companion_check(const struct registry *registry, const char *model, const struct version_id *companion_of,
		    uint64_t bytes, struct error *error)
{
	const struct version *version = is_set(companion_of) ? find(registry, model, companion_of) : NULL;
	char id[VERSION_ID_TEXT];
	uint64_t held;

	if (!is_set(companion_of))
		return 0;
	hex128_format(companion_of->bytes, id);
	if (!version)
		return error_set(error, -ENOENT, "a companion has the model of the version that it belongs to",
				 "%s has no version %s, to which a companion could belong", model, id);
	if (version->state != VERSION_READY)
		return error_set(error, -EINVAL, "only what is ready gets companions", "%s@%s is %s", model,
				 version->tag, version_state_name(version->state));
	if (version_is_companion(version))
		return error_set(error, -EINVAL, "name the version that it belongs to",
				 "%s@%s is a companion itself", model, version->tag);
	held = companions_bytes(registry, model, companion_of);
	if (bytes > COMPANION_BYTES_MAX || held > COMPANION_BYTES_MAX - bytes)
		return error_set(
			error, -EFBIG, "retire a companion that nobody needs: gpuwmctl show names them",
			"the companions of %s@%s have %llu bytes, and this one %llu: all of them may have "
			"%llu together",
			model, version->tag, (unsigned long long)held, (unsigned long long)bytes,
			(unsigned long long)COMPANION_BYTES_MAX);
	return 0;
}
