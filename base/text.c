#include "text.h"

#include <stdio.h>
#include <string.h>

bool text_ends(const char *text, const char *end)
{
	const size_t bytes = strlen(text), end_bytes = strlen(end);

	return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

const char *path_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool path_is_beneath(const char *name)
{
	for (const char *part = name;; part++) {
		if (*part == '\0' || *part == '.' || *part == '/')
			return false;
		part = strchrnul(part, '/');
		if (!*part)
			return true;
	}
}

void text_list_add(struct text_list *list, char *text, size_t size, const char *separator, const char *entry)
{
	const size_t left = size - list->length;
	int length;

	/* What follows an entry that found no room is counted only, so that the list is a beginning. */
	if (list->shown == list->count++) {
		length = snprintf(text + list->length, left, "%s%s", list->shown ? separator : "", entry);
		if (length >= 0 && (size_t)length < left) {
			list->length += (size_t)length;
			list->shown++;
		} else {
			text[list->length] = '\0';
		}
	}
}
