#include "letters.h"

#include "../answer.h"

#include <stdio.h>
#include <string.h>

static int position_of(const struct letters *letters, const char *id)
{
	for (int i = 0; i < LETTERS; i++)
		if (strcmp(letters->ids[i], id) == 0)
			return i;
	return -1;
}

void letters_update(struct letters *letters, const json_t *list)
{
	const json_t *version;
	size_t i;

	for (i = 0; i < LETTERS; i++)
		if (letters->ids[i][0] && !answer_version(list, letters->ids[i]))
			letters->ids[i][0] = '\0';
	json_array_foreach(json_object_get(list, "versions"), i, version) {
		const char *id = answer_text(version, "version");
		int position = position_of(letters, id) < 0 ? position_of(letters, "") : -1;

		/* A failed version has no memory. */
		if (position >= 0 && strcmp(answer_text(version, "state"), "failed") != 0)
			snprintf(letters->ids[position], sizeof(letters->ids[position]), "%s", id);
	}
}

char letters_of(const struct letters *letters, const char *id)
{
	int position = position_of(letters, id);

	if (position < 0)
		return LETTER_OTHER;
	return (char)(position < 26 ? 'a' + position : 'A' + position - 26);
}
