/* What a link is inside. */
#ifndef GPUWM_PEER_LINK_INTERNAL_H
#define GPUWM_PEER_LINK_INTERNAL_H

#include "link.h"

#include "../base/errors.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

/* "[" an address of IPv6 "]:65535" */
#define LINK_PLACE_BYTES (INET6_ADDRSTRLEN + 8)

struct link {
	int fd;
	SSL *tls;
	struct peer_keys *keys;
	/* Guards tls, whose functions may run in one thread at a time. No thread waits for the network while it holds the lock. */
	pthread_mutex_t lock;
	atomic_bool interrupted;
	bool clear; /* TLS has ended, and the connection has not */
	uint64_t limit_ms; /* when each call ends; 0: there is no such time */
	char address[INET6_ADDRSTRLEN];
	char name[PEER_HOST_BYTES_MAX + 1]; /* of the certificate */
	char shown[PEER_HOST_BYTES_MAX + LINK_PLACE_BYTES + 4];
};

/* One call of OpenSSL on the link: `step` does it and returns what OpenSSL returned. Repeats it, waiting for the network in between, until it is done
 * or deadline_ms (base/clock.h). Returns what it returned, above 0. Fails with -ENOLINK if the other side ended the connection as TLS wants it,
 * and as link_read. */
int link_step(struct link *link, int (*step)(SSL *tls, void *user), void *user, uint64_t deadline_ms,
	      struct error *error);

/* Sets an error of this link, with the peer in front. Returns the code. */
int link_error(const struct link *link, struct error *error, int code, const char *detail, const char *format,
	       ...) __attribute__((format(printf, 5, 6)));

/* Makes the TLS of a link, whose fd is set. name: of the side that is asked, NULL: this is the side that accepts. Returns 0, or -ENOMEM. */
int link_tls_new(struct link *link, const char *name, struct error *error);
/* Checks what a finished handshake came to, and sets the name of the other side. Returns 0, or -EKEYREJECTED. */
int link_tls_check(struct link *link, struct error *error);

/* ---- keys (keys.c) ----
 *
 * The members of struct peer_keys, for the files of the link. */

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
