#include "description.h"

#include "../../base/limits.h"

#include <stdlib.h>

static const struct record_field description_rows[] = {
	FIELD_TEXT(struct description, source, PATH_BYTES_MAX),
	FIELD_SPLICE(struct description, choice, struct load_choice, &load_choice_record),
	FIELD_TEXT_MAYBE(struct description, fingerprint, FINGERPRINT_TEXT),
	FIELD_BOOL_OR(struct description, by_publisher, false),
};
const struct record description_record = {RECORD(struct description, description_rows)};

struct description *description_new(const struct description *description)
{
	return record_copy(&description_record, description);
}

bool description_has_files(const struct description *description)
{
	return description && !description->fingerprint;
}

struct description *description_free(struct description *description)
{
	free(description);
	return NULL;
}
