/* The members of struct peer_keys, for the files of the link. */
#ifndef GPUWM_PEER_KEYS_INTERNAL_H
#define GPUWM_PEER_KEYS_INTERNAL_H

#include "keys.h"

#include "../base/errors.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>

#define SECRET_KEY_BYTES 48 /* of SHA-384, the hash of the one suite that secrets are used with */
#define SECRET_IDENTITY_BYTES 32

struct secret {
	uint8_t key[SECRET_KEY_BYTES];
	char identity[SECRET_IDENTITY_BYTES + 1];
};

struct peer_keys {
	atomic_uint holds;
	SSL_CTX *tls;
	struct secret secrets[PEER_LIST_MAX]; /* the first one is for connecting */
	size_t secret_count; /* 0: there are certificates */
	uint64_t end;
};

/* Sets up keys->tls for every link of these keys: TLS 1.3 only, and both sides prove who they are. Returns 0. Fails with -ENOMEM and
 * -EINVAL. */
int link_prepare(struct peer_keys *keys, struct error *error);

/* OpenSSL's errors, as gpuwm's: sets the error to the message, followed by the oldest reason in this thread's error
 * queue of OpenSSL. Empties the queue. Returns `code`. */
int tls_error(struct error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
