/* A version's key: what has to be equal for its bytes to be of use (dtype, quantisation, engine, …). In the
 * index it is metadata, each field under KEY_PREFIX. */
#ifndef GPUWM_LIB_KEY_H
#define GPUWM_LIB_KEY_H

#include "../../include/gpuwm/client.h"
#include "../../proto/errors.h"
#include "../../proto/index.h"
#include "../../proto/names.h"

/* -EINVAL: too many fields, one twice, a name or a value that can't be. */
int key_check(const struct gpuwm_key_field *key, size_t count, struct error *error);

/* A copy in one piece, for free(). NULL: out of memory. */
struct gpuwm_key_field *key_copy(const struct gpuwm_key_field *key, size_t count);

/* Into an index in the making. */
int key_put(struct index_builder *builder, const struct gpuwm_key_field *key, size_t count,
	    struct error *error);

/* 0: the version has all that is asked for; it may have more. -EKEYREJECTED naming the field, what was asked
 * for and what the version has. */
int key_compare(const struct index_view *view, const struct gpuwm_version_info *version,
		const struct gpuwm_key_field *key, size_t count, struct error *error);

#endif
