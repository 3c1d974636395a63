/* A version's key on its way to the loader: an array of {name, value}. */
#ifndef GPUWM_PROTO_KEY_H
#define GPUWM_PROTO_KEY_H

#include "record.h"
#include "../names.h"

/* In the version's metadata a key's field has this prefix: "key.dtype". */
#define KEY_PREFIX "key."

struct key_field {
	char name[NAME_BYTES_MAX + 1], value[KEY_VALUE_BYTES_MAX + 1];
};

/* Returns what is wrong with a field, as the end of a sentence, or NULL if nothing is. */
const char *key_field_wrong(const char *name, const char *value);

/* A field in a message. */
struct key_pair {
	const char *name, *value;
};
extern const struct record key_pair_record;

/* Checks the fields of a key that was read. Fails with -EINVAL if a field is wrong or a name comes twice. */
int key_pairs_check(const struct key_pair *pairs, uint32_t count, struct error *error);
/* Returns a copy of the fields, which were checked, for free(). Returns NULL if there is no memory. */
struct key_field *key_fields_new(const struct key_pair *pairs, uint32_t count);

#endif
