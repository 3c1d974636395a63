/* OpenSSL's errors, as gpuwm's. */
#ifndef GPUWM_PEER_TLS_ERROR_H
#define GPUWM_PEER_TLS_ERROR_H

#include "../base/errors.h"

#include <openssl/err.h>

/* Sets the error to the message, followed by the oldest reason in this thread's error queue of OpenSSL. Empties the queue. Returns
 * `code`. */
int tls_error(struct error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
