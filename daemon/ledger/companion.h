/* A companion: a cached version that belongs to another version of its model, as what an engine has compiled belongs to the weights. When
 * that version is freed, gpuwmd retires the companion. */
#ifndef GPUWM_DAEMON_COMPANION_H
#define GPUWM_DAEMON_COMPANION_H

#include "registry.h"

bool version_is_companion(const struct version *version);
/* Returns whether the version is a companion, and the version that it belongs to is gone or has failed. */
bool companion_is_left(const struct version *version);
/* Checks whether a version of this model may become a companion, or a companion get one more part, of so many bytes. Does nothing if
 * companion_of is zero. Fails with
 *   -ENOENT  The model has no version of this id.
 *   -EINVAL  That version is not ready, or is a companion itself.
 *   -EFBIG   All companions of that version would have more than COMPANION_BYTES_MAX. */
int companion_check(const struct registry *registry, const char *model, const struct version_id *companion_of,
		    uint64_t bytes, struct error *error);

#endif
