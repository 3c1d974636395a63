#include "explanations.h"

#include <stddef.h>
#include <strings.h>

static const struct explanation *find_in(const struct explanation *list, const char *code)
{
	for (; list->code; list++)
		if (strcasecmp(list->code, code) == 0)
			return list;
	return NULL;
}

const struct explanation *explanation_find(const char *code)
{
	const struct explanation *found = find_in(explanations_of_errors, code);

	return found ? found : find_in(explanations_of_statuses, code);
}
