/* Certificates and secrets in a folder of the test's own. */
#ifndef TESTS_SUPPORT_PEER_CERTIFICATES_H
#define TESTS_SUPPORT_PEER_CERTIFICATES_H

#include "peer/link.h"

#include <openssl/x509.h>

/* Somebody who signs. */
struct authority {
	EVP_PKEY *key;
	X509 *certificate;
};

/* What a node's certificate is to be. */
struct wanted {
	const char *names; /* as OpenSSL writes them: "DNS:node1,IP:127.0.0.1" */
	long begins, ends; /* seconds from now */
	const char *usage; /* of extendedKeyUsage; NULL: for both sides */
};

/* Makes the folder, and an authority whose certificate is the file NAME.pem in it. */
void certificates_begin(void);
void certificates_end(void);
struct authority authority_make(const char *name);
void authority_clear(struct authority *authority);

/* The path of a file in the folder. The text is valid until the next call but three. */
const char *certificates_path(const char *name);
/* Writes NAME.pem and NAME.key, signed by the authority. */
void certificate_make(const struct authority *authority, const char *name, const struct wanted *wanted);
/* Writes a file. */
void certificates_write(const char *name, const char *text, unsigned mode);

/* Settings with these files; the caller clears them. */
struct peer_settings settings_of(const char *certificate, const char *authority);
struct peer_settings settings_of_secret(const char *name);
/* Keys with these settings, which are cleared. The test fails if there are none. */
struct peer_keys *keys_of(struct peer_settings settings);

#endif
