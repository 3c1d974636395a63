#include "jansson_text.h"

#include <stdlib.h>

#define FORM (JSON_COMPACT | JSON_ENCODE_ANY)

char *jansson_text(const json_t *value)
{
	const size_t bytes = json_dumpb(value, NULL, 0, FORM);
	char *text = bytes ? calloc(1, bytes + 1) : NULL;

	if (text && json_dumpb(value, text, bytes, FORM) == bytes)
		return text;
	free(text);
	return NULL;
}
