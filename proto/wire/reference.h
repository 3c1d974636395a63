/* References and names of versions in a record: texts on the wire, parsed in memory. */
#ifndef GPUWM_PROTO_REFERENCE_H
#define GPUWM_PROTO_REFERENCE_H

#include "../names.h"
#include "record.h"

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

#endif
