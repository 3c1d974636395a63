/* The library's table of kinds of memory beside the one that all programs share. */
#include "memory/memory.h"

#include <criterion/criterion.h>

Test(memories, every_kind_has_its_functions)
{
	size_t i = 0;

	for (; memory_kinds[i] && memories[i]; i++)
		cr_expect_eq(memories[i]->kind, memory_kinds[i]);
	cr_expect(!memory_kinds[i] && !memories[i]);
}
