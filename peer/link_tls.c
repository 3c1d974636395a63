/* Who is who: what TLS is to ask and to prove. */
#include "link_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* No other protocol's server or client is taken for a node, whatever its certificate says. */
static const unsigned char protocol[] = "\012gpuwm-peer";
#define PROTOCOL_BYTES (sizeof(protocol) - 1)

/* The one suite of a secret: a secret belongs to a hash, and this is the longer one. */
#define SECRET_SUITE "TLS_AES_256_GCM_SHA384"
static const unsigned char secret_suite[] = {0x13, 0x02};

/* Names of the alternative names only, and no "node*.example". */
#define HOST_FLAGS (X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)

/* ---- secrets ---- */

static SSL_SESSION *session_of(SSL *tls, const struct secret *secret)
{
	SSL_SESSION *session = SSL_SESSION_new();
	const SSL_CIPHER *suite = SSL_CIPHER_find(tls, secret_suite);

	if (session && suite && SSL_SESSION_set1_master_key(session, secret->key, SECRET_KEY_BYTES) == 1 &&
	    SSL_SESSION_set_cipher(session, suite) == 1 &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int use_secret(SSL *tls, const EVP_MD *digest, const unsigned char **ret_id, size_t *ret_bytes,
		      SSL_SESSION **ret_session)
{
	const struct peer_keys *keys = SSL_CTX_get_app_data(SSL_get_SSL_CTX(tls));

	*ret_session = NULL;
	*ret_id = NULL;
	*ret_bytes = 0;
	if (digest && digest != EVP_sha384())
		return 1;
	*ret_session = session_of(tls, &keys->secrets[0]);
	*ret_id = (const unsigned char *)keys->secrets[0].identity;
	*ret_bytes = SECRET_IDENTITY_BYTES;
	return *ret_session ? 1 : 0;
}

static int find_secret(SSL *tls, const unsigned char *id, size_t bytes, SSL_SESSION **ret_session)
{
	const struct peer_keys *keys = SSL_CTX_get_app_data(SSL_get_SSL_CTX(tls));

	*ret_session = NULL;
	for (size_t i = 0; bytes == SECRET_IDENTITY_BYTES && i < keys->secret_count; i++) {
		if (memcmp(keys->secrets[i].identity, id, bytes) == 0) {
			*ret_session = session_of(tls, &keys->secrets[i]);
			return *ret_session ? 1 : 0;
		}
	}
	return 1;
}

/* ---- what all links have ---- */

static int select_protocol(SSL *tls, const unsigned char **ret, unsigned char *ret_bytes,
			   const unsigned char *offered, unsigned bytes, void *user)
{
	unsigned char *found;

	(void)tls;
	(void)user;
	if (SSL_select_next_proto(&found, ret_bytes, protocol, PROTOCOL_BYTES, offered, bytes) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret = found;
	return SSL_TLSEXT_ERR_OK;
}

int link_prepare(struct peer_keys *keys, struct error *error)
{
	SSL_CTX *tls = keys->tls;
	int ok = SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) == 1 &&
		 SSL_CTX_set_max_proto_version(tls, TLS1_3_VERSION) == 1 &&
		 SSL_CTX_set_alpn_protos(tls, protocol, PROTOCOL_BYTES) == 0 && /* 0 is good here */
		 SSL_CTX_set_num_tickets(tls, 0) == 1;

	/* Nothing is resumed: each connection proves anew who is who, and needs no server's memory. */
	SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(tls, SSL_OP_NO_TICKET);
	SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_alpn_select_cb(tls, select_protocol, NULL);
	SSL_CTX_set_app_data(tls, keys);
	if (ok && keys->secret_count > 0) {
		SSL_CTX_set_psk_use_session_callback(tls, use_secret);
		SSL_CTX_set_psk_find_session_callback(tls, find_secret);
		/* A server that does not know the secret can only show a certificate, and nobody signs for any. */
		SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
		ok = SSL_CTX_set_ciphersuites(tls, SECRET_SUITE) == 1;
	} else if (ok) {
		SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	return ok ? 0 : tls_error(error, -ENOMEM, "OpenSSL can't be set up");
}

/* ---- one link ---- */

static int want_name(SSL *tls, const char *name)
{
	struct in6_addr address;

	SSL_set_hostflags(tls, HOST_FLAGS);
	if (inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), name);
	return SSL_set1_host(tls, name) == 1 && SSL_set_tlsext_host_name(tls, name) == 1;
}

int link_tls_new(struct link *link, const char *name, struct error *error)
{
	link->tls = SSL_new(link->keys->tls);
	if (!link->tls || SSL_set_fd(link->tls, link->fd) != 1)
		return tls_error(error, -ENOMEM, "out of memory");
	if (!name) {
		SSL_set_accept_state(link->tls);
		/* With a secret nobody shows a certificate, and there is none to ask for. */
		if (link->keys->secret_count > 0)
			SSL_set_verify(link->tls, SSL_VERIFY_NONE, NULL);
		return 0;
	}
	SSL_set_connect_state(link->tls);
	if (link->keys->secret_count == 0 && want_name(link->tls, name) != 1)
		return tls_error(error, -ENOMEM, "out of memory");
	return 0;
}

/* ---- names of certificates ---- */

/* Calls `found` for each DNS name, until it returns true. Returns whether it did. */
static bool each_name(const SSL *tls, bool (*found)(const char *name, void *user), void *user)
{
	X509 *certificate = SSL_get0_peer_certificate(tls);
	GENERAL_NAMES *names =
		certificate ? X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL) : NULL;
	bool done = false;

	for (int i = 0; !done && names && i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		const char *text;

		if (name->type != GEN_DNS)
			continue;
		text = (const char *)ASN1_STRING_get0_data(name->d.dNSName);
		if (strlen(text) == (size_t)ASN1_STRING_length(name->d.dNSName))
			done = found(text, user);
	}
	GENERAL_NAMES_free(names);
	return done;
}

static bool take_name(const char *name, void *user)
{
	struct link *link = user;

	snprintf(link->name, sizeof(link->name), "%s", name);
	return true;
}

static bool is_listed(const char *name, void *user)
{
	const struct peer_list *names = user;
	const char *dot = strchr(name, '.');

	for (size_t i = 0; i < names->count; i++) {
		const char *item = names->items[i];

		if (strcasecmp(item, name) == 0 ||
		    (strncmp(item, "*.", 2) == 0 && dot && strcasecmp(item + 1, dot) == 0))
			return true;
	}
	return false;
}

bool link_peer_matches(const struct link *link, const struct peer_list *names)
{
	return names->count == 0 || link->keys->secret_count > 0 ||
	       each_name(link->tls, is_listed, (void *)(uintptr_t)names);
}

/* OpenSSL has seen to all of this. But if it had not, nobody would notice. */
int link_tls_check(struct link *link, struct error *error)
{
	bool secret = link->keys->secret_count > 0;
	const unsigned char *chosen;
	unsigned bytes;
	bool proved =
		secret ? SSL_session_reused(link->tls) == 1
		       : SSL_get0_peer_certificate(link->tls) && SSL_get_verify_result(link->tls) == X509_V_OK;

	SSL_get0_alpn_selected(link->tls, &chosen, &bytes);
	if (SSL_version(link->tls) != TLS1_3_VERSION || bytes != PROTOCOL_BYTES - 1 ||
	    memcmp(chosen, protocol + 1, bytes) != 0)
		return link_error(link, error, -EPROTO, NULL, "it is no node of gpuwm");
	if (!proved)
		return link_error(link, error, -EKEYREJECTED, NULL, "it has not proved who it is");
	if (!secret)
		each_name(link->tls, take_name, link);
	return 0;
}
