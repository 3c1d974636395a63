/* Names of the entries of a folder. */
#ifndef GPUWM_LOADER_NAME_LIST_H
#define GPUWM_LOADER_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed: an empty list. */
struct name_list {
	char **names;
	size_t count;
};

/* Adds a copy of the name. Returns whether there was memory for it. */
bool name_list_add(struct name_list *list, const char *name);
/* Puts the names into the order of their bytes: folders list them in any order. */
void name_list_sort(struct name_list *list);
/* Frees the names. */
void name_list_clear(struct name_list *list);

#endif
