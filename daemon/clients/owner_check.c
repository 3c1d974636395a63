#include "owner_check.h"

#include <errno.h>
#include <stdio.h>

static bool is_fulfilled(const struct owner_wish *wish, const struct version *version)
{
	for (uint32_t i = 0; i < wish->count; i++) {
		if (wish->uids[i] == version->owner)
			return true;
	}
	return wish->operators ? version->by_operator : wish->count == 0;
}

int owner_check(const struct owner_wish *wish, const struct version *version, struct error *error)
{
	char asked[16 * OWNER_UIDS_MAX];
	int used = snprintf(asked, sizeof(asked), "%s", wish->operators ? " an operator" : "");

	if (is_fulfilled(wish, version))
		return 0;
	for (uint32_t i = 0; i < wish->count; i++)
		used += snprintf(asked + used, sizeof(asked) - (size_t)used, "%s uid %u", used ? "," : "",
				 (unsigned)wish->uids[i]);
	return error_set(error, -EACCES, "list tells who made each version",
			 "%s@%s was made by %suid %u; the request accepts only versions of%s",
			 model_name(version->model), version->tag, version->by_operator ? "an operator, " : "",
			 (unsigned)version->owner, asked);
}
