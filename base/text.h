/* Texts: how they end, and lists of them that have room for a beginning only. */
#ifndef GPUWM_BASE_TEXT_H
#define GPUWM_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether the text ends with `end` and has more before it. */
bool text_ends(const char *text, const char *end);
/* Returns what is behind the last slash: all of a text that has none. It points into the path. */
const char *path_last(const char *path);
/* Returns whether the name of a file stays beneath the folder that it is given in, in sight: no part between slashes is empty or
 * begins with a dot. */
bool path_is_beneath(const char *name);

/* How much of a list found room in its text. Zeroed: an empty list. */
struct text_list {
	size_t count; /* of entries */
	size_t shown; /* the first so many are in the text */
	size_t length; /* of the text */
};
/* Adds an entry to the list, and to the text of `size` bytes if it and all before it have room there. */
void text_list_add(struct text_list *list, char *text, size_t size, const char *separator, const char *entry);

#endif
