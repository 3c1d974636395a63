/* The key of a version: fields that must be equal for its bytes to be useful (dtype, quantisation, engine, …). In the index they are
 * metadata, each under KEY_PREFIX. */
#ifndef GPUWM_LIB_KEY_H
#define GPUWM_LIB_KEY_H

#include "../../include/gpuwm/client.h"
#include "../../base/errors.h"
#include "../../proto/index/index.h"
#include "../../proto/names.h"

/* Checks a key. Fails with -EINVAL if it has too many fields, or one twice, or a name or value that no field can have. */
int key_check(const struct gpuwm_key_field *key, size_t count, struct error *error);

/* Returns a copy, which the caller frees with one free(). NULL: there is no memory. */
struct gpuwm_key_field *key_copy(const struct gpuwm_key_field *key, size_t count);

/* Adds the key to an index that is being built. */
int key_put(struct index_builder *builder, const struct gpuwm_key_field *key, size_t count,
	    struct error *error);

/* Checks that the version has all fields of the key; it may have more. Fails with -EKEYREJECTED; the message has the field, the value
 * of the key and the value of the version. */
int key_compare(const struct index_view *view, const struct gpuwm_version_info *version,
		const struct gpuwm_key_field *key, size_t count, struct error *error);

#endif
