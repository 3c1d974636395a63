/* Which version a message means: its reference or name, whose versions count, and its key. */
#ifndef GPUWM_PROTO_REFERENCE_H
#define GPUWM_PROTO_REFERENCE_H

#include "../names.h"
#include "record.h"

/* ---- references and names: texts on the wire, parsed in memory ---- */

/* A member of this type is written from `text`, and read into `ref`. */
struct reference {
	const char *text; /* NULL: nil */
	struct ref ref;
};

/* Any reference to a version: ref_parse. */
extern const struct record_codec reference_codec;
/* The name of a version, model@tag: ref.model and ref.name are set. */
extern const struct record_codec name_codec;

/* Parses the reference that the key has. Fails with -EINVAL; the message names both. */
int reference_parse(const char *text, const char *key, struct ref *ret, struct error *error);

#define FIELD_REF(S, m) FIELD_CODEC(S, m, RECORD_REQUIRED, struct reference, &reference_codec)
#define FIELD_NAME(S, m) FIELD_CODEC(S, m, RECORD_REQUIRED, struct reference, &name_codec)
/* If it is missing, ref.model is empty. */
#define FIELD_NAME_MAYBE(S, m) FIELD_CODEC(S, m, RECORD_MAYBE, struct reference, &name_codec)

/* ---- the parameter `owner` of get_handles and claim ----
 * It says whose versions a client accepts. With it, a client does not get the version of a stranger who took the name first. */

/* Zeroed: versions of anybody. */
struct owner_wish {
	uint32_t uids[OWNER_UIDS_MAX];
	uint32_t count;
	bool operators; /* versions that an operator made */
};

/* An array that is there must name somebody. */
extern const struct record_codec owner_codec;

/* The text among the uids that stands for `operators`. */
#define OWNER_OPERATOR "operator"

#define FIELD_OWNER(S, m) FIELD_CODEC(S, m, RECORD_MAYBE, struct owner_wish, &owner_codec)

/* ---- a version's key: an array of {name, value} ---- */

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
