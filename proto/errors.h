/* Error codes: negative errno inside, errno names on the wire. */
#ifndef GPUWM_PROTO_ERRORS_H
#define GPUWM_PROTO_ERRORS_H

#include "limits.h"

/* An error as it travels: what happened and to what (message), and the limit
 * or the remedy where there is one (detail, may be empty). */
struct error {
	int code; /* negative errno; 0: no error */
	char message[TEXT_BYTES_MAX + 1];
	char detail[TEXT_BYTES_MAX + 1];
};

/* Fills *error and returns code, so that callers can `return error_set(...)`.
 * code is a negative errno. `detail` may be NULL; `message` is a format.
 * error may be NULL: only the code is returned. The arguments may lie in *error.
 * Texts come out as one line of UTF-8: control characters and bytes that are
 * no UTF-8 (from a peer's names) become '?'. */
int error_set(struct error *error, int code, const char *detail, const char *message, ...)
	__attribute__((format(printf, 4, 5)));

/* "ENOENT" for -ENOENT; "EIO" for a code that the protocol does not know. */
const char *error_name(int code);

/* -ENOENT for "ENOENT"; -EIO, as in the other direction, for a name that the protocol does not know. */
int error_code(const char *name);

#endif
