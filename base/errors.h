/* Error codes: negative errno inside, errno names on the wire. */
#ifndef GPUWM_BASE_ERRORS_H
#define GPUWM_BASE_ERRORS_H

#include "limits.h"

/* An error on its way to a person: what failed, on what and why (message), and the limit or the
 * remedy (detail, which may be empty). */
struct error {
	int code; /* negative errno; 0: no error */
	char message[TEXT_BYTES_MAX + 1];
	char detail[TEXT_BYTES_MAX + 1];
};

/* Fills *error and returns `code`, so that callers can write `return error_set(...)`. code is a
 * negative errno. detail may be NULL. message is a format. If error is NULL, the function only
 * returns the code. The arguments may point into *error. Both texts become one line of UTF-8:
 * control characters, and bytes that are not UTF-8 (in names that a peer chose), become '?'. */
int error_set(struct error *error, int code, const char *detail, const char *message, ...)
	__attribute__((format(printf, 4, 5)));

/* Returns "ENOENT" for -ENOENT, and "EIO" for a code that the protocol does not know. */
const char *error_name(int code);

/* Returns -ENOENT for "ENOENT", and -EIO for a name that the protocol does not know. */
int error_code(const char *name);

#endif
