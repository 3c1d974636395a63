/* What a caller demands of a version: its key, and its owners.
 *
 * The key of a version: fields that must be equal for its bytes to be useful (dtype, quantisation, engine, …). In the index they are
 * metadata, each under KEY_PREFIX. */
#ifndef GPUWM_LIB_KEY_H
#define GPUWM_LIB_KEY_H

#include "../../include/gpuwm/client.h"
#include "../../base/errors.h"
#include "../../proto/index/index.h"
#include "../../proto/names.h"
#include "../../proto/wire/reference.h"

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

/* ---- owners ----
 * The owners whose versions a caller accepts: owner_uids and owner_operator of gpuwm_attach_options, as a mapping keeps them. */

/* Checks the options. Fails with -EINVAL if there are too many users, or no array. */
int owner_check(const struct gpuwm_attach_options *options, struct error *error);
/* Returns the owners of options that were checked. */
struct owner_wish owner_of(const struct gpuwm_attach_options *options);
/* Sets the options to these owners, which must outlive the options. */
void owner_set(const struct owner_wish *owner, struct gpuwm_attach_options *options);

#endif
