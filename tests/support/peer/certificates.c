#include "certificates.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

void certificates_begin(void)
{
	strcpy(folder, "/tmp/gpuwm-peer-XXXXXX");
	cr_assert(mkdtemp(folder));
}

void certificates_end(void)
{
	DIR *list = opendir(folder);
	struct dirent *entry;

	while ((entry = readdir(list)))
		unlinkat(dirfd(list), entry->d_name, 0);
	closedir(list);
	rmdir(folder);
}

const char *certificates_path(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

void certificates_write(const char *name, const char *text, unsigned mode)
{
	int fd = open(certificates_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fchmod(fd, mode), 0);
	close(fd);
}

/* ---- certificates ---- */

static void add(X509 *certificate, X509 *issuer, int kind, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;

	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
	cr_assert(extension, "%s", value);
	cr_assert_eq(X509_add_ext(certificate, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

static X509 *make(EVP_PKEY *key, const char *name, long begins, long ends)
{
	static long serial;
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_get_subject_name(certificate);

	X509_set_version(certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(certificate), begins);
	X509_gmtime_adj(X509_getm_notAfter(certificate), ends);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0);
	X509_set_pubkey(certificate, key);
	return certificate;
}

static void write_certificate(const char *name, const char *end, X509 *certificate)
{
	char file[128];
	FILE *stream;

	snprintf(file, sizeof(file), "%s%s", name, end);
	stream = fopen(certificates_path(file), "we");
	cr_assert(stream && PEM_write_X509(stream, certificate));
	fclose(stream);
}

static void write_key(const char *name, EVP_PKEY *key)
{
	char file[128];
	FILE *stream;

	snprintf(file, sizeof(file), "%s.key", name);
	stream = fopen(certificates_path(file), "we");
	cr_assert(stream && PEM_write_PrivateKey(stream, key, NULL, NULL, 0, NULL, NULL));
	cr_assert_eq(fchmod(fileno(stream), 0600), 0);
	fclose(stream);
}

struct authority authority_make(const char *name)
{
	struct authority made = {.key = EVP_EC_gen("P-256")};

	made.certificate = make(made.key, name, -3600, 86400);
	X509_set_issuer_name(made.certificate, X509_get_subject_name(made.certificate));
	add(made.certificate, made.certificate, NID_basic_constraints, "critical,CA:TRUE");
	cr_assert(X509_sign(made.certificate, made.key, EVP_sha256()));
	write_certificate(name, ".pem", made.certificate);
	return made;
}

void authority_clear(struct authority *authority)
{
	X509_free(authority->certificate);
	EVP_PKEY_free(authority->key);
}

void certificate_make(const struct authority *authority, const char *name, const struct wanted *wanted)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *made = make(key, name, wanted->begins, wanted->ends);

	X509_set_issuer_name(made, X509_get_subject_name(authority->certificate));
	if (wanted->names)
		add(made, authority->certificate, NID_subject_alt_name, wanted->names);
	add(made, authority->certificate, NID_ext_key_usage,
	    wanted->usage ? wanted->usage : "serverAuth,clientAuth");
	cr_assert(X509_sign(made, authority->key, EVP_sha256()));
	write_certificate(name, ".pem", made);
	write_key(name, key);
	X509_free(made);
	EVP_PKEY_free(key);
}

/* ---- settings ---- */

static void set(struct peer_settings *settings, const char *key, const char *name, const char *end)
{
	struct error error;
	char file[128];

	snprintf(file, sizeof(file), "%s%s", name, end);
	cr_assert_eq(peer_settings_set(settings, key, certificates_path(file), &error), 0, "%s", error.message);
}

struct peer_settings settings_of(const char *certificate, const char *authority)
{
	struct peer_settings settings = {0};

	set(&settings, "certificate", certificate, ".pem");
	set(&settings, "key", certificate, ".key");
	set(&settings, "authority", authority, ".pem");
	return settings;
}

struct peer_settings settings_of_secret(const char *name)
{
	struct peer_settings settings = {0};

	set(&settings, "secret", name, "");
	return settings;
}

struct peer_keys *keys_of(struct peer_settings settings)
{
	struct peer_keys *keys;
	struct error error;

	cr_assert_eq(peer_keys_read(&settings, &keys, &error), 0, "%s", error.message);
	peer_settings_clear(&settings);
	return keys;
}
