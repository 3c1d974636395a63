#include "name_list.h"

#include <stdlib.h>
#include <string.h>

bool name_list_add(struct name_list *list, const char *name)
{
	char **names = list->names, *copy = strdup(name);

	/* The array grows at every power of two. */
	if (copy && (list->count & (list->count - 1)) == 0)
		names = realloc(list->names, (2 * list->count + 1) * sizeof(*names));
	if (names)
		list->names = names;
	if (!copy || !names) {
		free(copy);
		return false;
	}
	names[list->count++] = copy;
	return true;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void name_list_sort(struct name_list *list)
{
	if (list->count > 0)
		qsort(list->names, list->count, sizeof(*list->names), compare_names);
}

void name_list_clear(struct name_list *list)
{
	while (list->count > 0)
		free(list->names[--list->count]);
	free(list->names);
	list->names = NULL;
}
