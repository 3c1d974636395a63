/* A version's key on its way to the loader: an array of {name, value}. */
#ifndef GPUWM_PROTO_KEY_H
#define GPUWM_PROTO_KEY_H

#include "message.h"
#include "names.h"

/* In the version's metadata a key's field has this prefix: "key.dtype". */
#define KEY_PREFIX "key."

struct key_field {
	char name[NAME_BYTES_MAX + 1], value[KEY_VALUE_BYTES_MAX + 1];
};

/* Returns what is wrong with a field, as the end of a sentence, or NULL if nothing is. */
const char *key_field_wrong(const char *name, const char *value);

void key_write(struct message_writer *w, const char *name, const char *value);
/* Reads the array `key`. Returns it, for free(), and sets *ret_count. Returns NULL with a count of
 * 0 if there is no such array. -EINVAL (too many fields, a wrong one, or a name that comes twice)
 * and -ENOMEM stick to *f. */
struct key_field *key_read(struct fields *f, const char *key, uint32_t *ret_count);

#endif
