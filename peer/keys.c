#include "link_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What makes a secret of this file a key of these links, and of nothing else that the file may be used for. */
#define KEY_LABEL "gpuwm peers, key 1"
#define IDENTITY_LABEL "gpuwm peers, identity 1"

int tls_error(struct error *error, int code, const char *format, ...)
{
	const char *reason = ERR_reason_error_string(ERR_get_error());
	char message[TEXT_BYTES_MAX + 1];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	ERR_clear_error();
	return error_set(error, code, NULL, "%s%s%s", message, reason ? ": " : "", reason ? reason : "");
}

/* ---- files that others must not read ---- */

/* A file that everybody can read is no secret. Its group may: the services that need it have one together. */
static int check_private(const char *path, int fd, struct error *error)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_set(error, -errno, NULL, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return error_set(error, -EINVAL, NULL, "%s is no file", path);
	if (st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
		return error_set(error, -EACCES, "chmod 0640, or 0600",
				 "%s has the mode %04o: others may read or change it", path,
				 (unsigned)(st.st_mode & 07777));
	return 0;
}

static int open_file(const char *path, struct error *error)
{
	char detail[96];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int code = fd < 0 ? -errno : 0;

	if (fd >= 0)
		return fd;
	snprintf(detail, sizeof(detail), "it is read as uid %u: change its owner, group or mode",
		 (unsigned)geteuid());
	return error_set(error, code, code == -EACCES ? detail : "[peers] in gpuwmd.conf names it",
			 "%s can't be read: %s", path, strerror(-code));
}

/* Returns a stream of the file, or NULL. */
static BIO *open_pem(const char *path, bool private, struct error *error)
{
	int fd = open_file(path, error);
	FILE *stream;
	BIO *bio;

	if (fd < 0)
		return NULL;
	if (private && check_private(path, fd, error) < 0) {
		close(fd);
		return NULL;
	}
	stream = fdopen(fd, "r");
	bio = stream ? BIO_new_fp(stream, BIO_CLOSE) : NULL;
	if (!bio) {
		if (stream)
			fclose(stream);
		else
			close(fd);
		error_set(error, -ENOMEM, NULL, "out of memory");
	}
	return bio;
}

/* ---- certificates ---- */

/* An encrypted key would make OpenSSL ask at the terminal. */
static int no_password(char *buffer, int size, int writing, void *user)
{
	(void)buffer, (void)size, (void)writing, (void)user;
	return -1;
}

/* Reads the next certificate of a file. Returns NULL at its end, and with *error if what follows is a damaged one: whoever left it out
 * would trust less, or prove less, than the file says. number: that of the certificate, from 1. */
static X509 *next_certificate(BIO *bio, const char *path, unsigned number, struct error *error)
{
	X509 *certificate = PEM_read_bio_X509(bio, NULL, no_password, NULL);
	const unsigned long why = certificate ? 0 : ERR_peek_last_error();

	error->code = 0;
	if (!certificate && number > 1 && ERR_GET_LIB(why) == ERR_LIB_PEM &&
	    ERR_GET_REASON(why) == PEM_R_NO_START_LINE)
		ERR_clear_error(); /* the end of the file */
	else if (!certificate && number > 1)
		tls_error(error, -EINVAL, "%s: its certificate number %u can't be read", path, number);
	else if (!certificate)
		tls_error(error, -EINVAL, "%s has no certificate in PEM", path);
	return certificate;
}

static int use_certificate(SSL_CTX *tls, const char *path, struct error *error)
{
	BIO *bio = open_pem(path, false, error);
	X509 *next;
	int r = 0;

	if (!bio)
		return error->code;
	for (unsigned i = 1; r == 0 && (next = next_certificate(bio, path, i, error)); i++) {
		if (i > 1 && SSL_CTX_add0_chain_cert(tls, next) == 1)
			continue; /* the chain has it */
		if (i > 1)
			r = tls_error(error, -EINVAL, "%s: the chain is wrong", path);
		else if (SSL_CTX_use_certificate(tls, next) != 1)
			r = tls_error(error, -EINVAL, "%s has no certificate that can be used", path);
		X509_free(next);
	}
	BIO_free(bio);
	return r < 0 ? r : error->code;
}

static int use_key(SSL_CTX *tls, const struct peer_settings *settings, struct error *error)
{
	BIO *bio = open_pem(settings->key, true, error);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
	int r = 0;

	if (!bio)
		return error->code;
	if (!key)
		r = tls_error(error, -EINVAL, "%s has no key in PEM, or one with a password", settings->key);
	else if (SSL_CTX_use_PrivateKey(tls, key) != 1 || SSL_CTX_check_private_key(tls) != 1)
		r = tls_error(error, -EINVAL, "%s is not the key of %s", settings->key, settings->certificate);
	EVP_PKEY_free(key);
	BIO_free(bio);
	return r;
}

static int use_authority(SSL_CTX *tls, const char *path, struct error *error)
{
	BIO *bio = open_pem(path, false, error);
	X509_STORE *store = SSL_CTX_get_cert_store(tls);
	X509 *next;
	int r = 0;

	if (!bio)
		return error->code;
	for (unsigned i = 1; r == 0 && (next = next_certificate(bio, path, i, error)); i++) {
		if (X509_STORE_add_cert(store, next) != 1 || SSL_CTX_add_client_CA(tls, next) != 1)
			r = tls_error(error, -EINVAL, "%s: its certificate number %u can't be used", path, i);
		X509_free(next);
	}
	BIO_free(bio);
	return r < 0 ? r : error->code;
}

/* Others would refuse it, and say less. */
static int check_dates(struct peer_keys *keys, const struct peer_settings *settings, struct error *error)
{
	const X509 *certificate = SSL_CTX_get0_certificate(keys->tls);
	struct tm end = {0};

	if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
		return error_set(error, -EKEYREJECTED, "is the clock right?", "%s is not valid yet",
				 settings->certificate);
	if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
		return error_set(error, -EKEYREJECTED, "have a new one made, then reload", "%s is out of date",
				 settings->certificate);
	if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1)
		keys->end = (uint64_t)timegm(&end);
	return 0;
}

static int use_files(struct peer_keys *keys, const struct peer_settings *settings, struct error *error)
{
	int r = use_certificate(keys->tls, settings->certificate, error);

	if (r == 0)
		r = use_key(keys->tls, settings, error);
	if (r == 0)
		r = use_authority(keys->tls, settings->authority, error);
	return r < 0 ? r : check_dates(keys, settings, error);
}

/* ---- secrets ---- */

/* SHA-384 of a label and the secret: the hash of the suite that the key is for. */
static int derive(const char *label, const uint8_t *secret, size_t bytes, uint8_t ret[SECRET_KEY_BYTES])
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	int ok = digest && EVP_DigestInit_ex(digest, EVP_sha384(), NULL) == 1 &&
		 EVP_DigestUpdate(digest, label, strlen(label) + 1) == 1 &&
		 EVP_DigestUpdate(digest, secret, bytes) == 1 && EVP_DigestFinal_ex(digest, ret, NULL) == 1;

	EVP_MD_CTX_free(digest);
	return ok ? 0 : -ENOMEM;
}

/* The identity tells which of several secrets is meant, and nothing about it. */
static int make_secret(struct secret *secret, const uint8_t *bytes, size_t count)
{
	uint8_t hash[SECRET_KEY_BYTES];
	int r = derive(KEY_LABEL, bytes, count, secret->key);

	if (r == 0)
		r = derive(IDENTITY_LABEL, bytes, count, hash);
	for (size_t i = 0; r == 0 && i < SECRET_IDENTITY_BYTES / 2; i++)
		sprintf(secret->identity + 2 * i, "%02x", hash[i]);
	return r;
}

static int read_secret(const char *path, struct secret *ret, struct error *error)
{
	uint8_t bytes[PEER_SECRET_BYTES_MAX + 1];
	int fd = open_file(path, error), r;
	ssize_t count;

	if (fd < 0)
		return fd;
	r = check_private(path, fd, error);
	count = r == 0 ? read(fd, bytes, sizeof(bytes)) : 0;
	if (count < 0)
		r = error_set(error, -errno, NULL, "%s can't be read: %s", path, strerror(errno));
	close(fd);
	if (r < 0)
		return r;
	/* Editors and `echo` add line ends: they would make two secrets of one. */
	while (count > 0 && (bytes[count - 1] == '\n' || bytes[count - 1] == '\r'))
		count--;
	if (count < PEER_SECRET_BYTES_MIN || count > PEER_SECRET_BYTES_MAX)
		r = error_set(error, -EINVAL, "`openssl rand -hex 32` makes one",
			      "%s has %zd bytes without its line end; a secret has %d to %d", path, count,
			      PEER_SECRET_BYTES_MIN, PEER_SECRET_BYTES_MAX);
	else if (make_secret(ret, bytes, (size_t)count) < 0)
		r = error_set(error, -ENOMEM, NULL, "out of memory");
	OPENSSL_cleanse(bytes, sizeof(bytes));
	return r;
}

/* ---- keys ---- */

static int secret_read_all(struct peer_keys *keys, const struct peer_settings *settings, struct error *error)
{
	int r = 0;

	keys->tls = SSL_CTX_new(TLS_method());
	if (!keys->tls)
		return tls_error(error, -ENOMEM, "OpenSSL can't begin");
	if (settings->certificate)
		r = use_files(keys, settings, error);
	for (size_t i = 0; r == 0 && i < settings->secrets.count; i++) {
		r = read_secret(settings->secrets.items[i], &keys->secrets[i], error);
		keys->secret_count++;
	}
	return r < 0 ? r : link_prepare(keys, error);
}

int peer_keys_read(const struct peer_settings *settings, struct peer_keys **ret, struct error *error)
{
	struct peer_keys *keys;
	int r;

	if (!peer_settings_on(settings))
		return error_set(error, -EACCES,
				 "set certificate, key and authority, or secret, in [peers] of gpuwmd.conf",
				 "this node has no peers: there are no keys for them");
	keys = calloc(1, sizeof(*keys));
	if (!keys)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	atomic_init(&keys->holds, 1);
	r = secret_read_all(keys, settings, error);
	if (r < 0)
		peer_keys_release(keys);
	else
		*ret = keys;
	return r;
}

struct peer_keys *peer_keys_hold(struct peer_keys *keys)
{
	atomic_fetch_add(&keys->holds, 1);
	return keys;
}

struct peer_keys *peer_keys_release(struct peer_keys *keys)
{
	if (!keys || atomic_fetch_sub(&keys->holds, 1) > 1)
		return NULL;
	SSL_CTX_free(keys->tls);
	OPENSSL_cleanse(keys, sizeof(*keys));
	free(keys);
	return NULL;
}

uint64_t peer_keys_end(const struct peer_keys *keys)
{
	return keys->end;
}
