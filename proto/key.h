/* A version's key on its way to the loader: an array of {name, value}. */
#ifndef GPUWM_PROTO_KEY_H
#define GPUWM_PROTO_KEY_H

#include "message.h"
#include "names.h"

/* What the fields are called in the version's metadata: "key.dtype". */
#define KEY_PREFIX "key."

struct key_field {
	char name[NAME_BYTES_MAX + 1], value[KEY_VALUE_BYTES_MAX + 1];
};

/* What is wrong with a field, as the end of a sentence; NULL: nothing. */
const char *key_field_wrong(const char *name, const char *value);

void key_write(struct message_writer *w, const char *name, const char *value);
/* The array `key`, malloced; NULL with count 0 where there is none. -EINVAL (too many, a wrong field,
 * one twice) and -ENOMEM stick to *f. */
struct key_field *key_read(struct fields *f, const char *key, uint32_t *ret_count);

#endif
