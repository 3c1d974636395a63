#include "memory_kind.h"
#include "../../proto/limits.h"

#include <stddef.h>
#include <string.h>

const struct memory_kind memory_host = {
	.name = "host", .budget_percent = BUDGET_PERCENT_HOST, .can_look = true};
const struct memory_kind memory_cuda = {.name = "cuda", .budget_percent = BUDGET_PERCENT_CUDA, .is_gpu = true};

const struct memory_kind *memory_kind_find(const char *name)
{
	static const struct memory_kind *const kinds[] = {&memory_host, &memory_cuda};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	}
	return NULL;
}
