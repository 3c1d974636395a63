#include "key.h"

#include "../../base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *key_field_wrong(const char *name, const char *value)
{
	const char *wrong = name ? name_wrong(name) : "has no name";

	if (wrong)
		return wrong;
	if (!value)
		return "has no value";
	if (strlen(value) > KEY_VALUE_BYTES_MAX)
		return "has a value of more than 255 bytes";
	return utf8_valid(value) ? NULL : "has a value that is not UTF-8";
}

static const struct record_field key_pair_rows[] = {
	FIELD_TEXT(struct key_pair, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct key_pair, value, KEY_VALUE_BYTES_MAX),
};
const struct record key_pair_record = {RECORD(struct key_pair, key_pair_rows)};

int key_pairs_check(const struct key_pair *pairs, uint32_t count, struct error *error)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *wrong = key_field_wrong(pairs[i].name, pairs[i].value);

		for (uint32_t j = 0; !wrong && j < i; j++)
			wrong = strcmp(pairs[i].name, pairs[j].name) == 0 ? "is there twice" : NULL;
		if (wrong)
			return error_set(error, -EINVAL, "a field is named as models are",
					 "the key's field \"%s\" %s", pairs[i].name, wrong);
	}
	return 0;
}

struct key_field *key_fields_new(const struct key_pair *pairs, uint32_t count)
{
	struct key_field *fields = calloc((size_t)count + 1, sizeof(*fields));

	for (uint32_t i = 0; fields && i < count; i++) {
		strcpy(fields[i].name, pairs[i].name);
		strcpy(fields[i].value, pairs[i].value);
	}
	return fields;
}
