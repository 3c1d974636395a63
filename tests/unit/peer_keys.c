/* The files of certificates and secrets, and what is refused. */
#include "tests/support/peer/certificates.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct wanted good = {.names = "DNS:node1.example", .begins = -60, .ends = 3600};

static struct authority authority;
static struct error error;

static void begin(void)
{
	certificates_begin();
	authority = authority_make("authority");
	certificate_make(&authority, "node1", &good);
}

static void end(void)
{
	authority_clear(&authority);
	certificates_end();
}

TestSuite(keys, .init = begin, .fini = end);

/* Returns what reading returned; the settings are cleared. */
static int try(struct peer_settings settings)
{
	struct peer_keys *keys = NULL;
	int r = peer_keys_read(&settings, &keys, &error);

	peer_settings_clear(&settings);
	peer_keys_release(keys);
	return r;
}

static int try_files(void)
{
	return try(settings_of("node1", "authority"));
}

static int try_secret(const char *text, unsigned mode)
{
	certificates_write("secret", text, mode);
	return try(settings_of_secret("secret"));
}

#define SAYS(words) cr_expect(strstr(error.message, words), "%s", error.message)

Test(keys, that_are_right)
{
	struct peer_keys *keys = keys_of(settings_of("node1", "authority"));

	cr_expect_gt(peer_keys_end(keys), 0);
	cr_expect_eq(peer_keys_hold(keys), keys);
	peer_keys_release(keys);
	peer_keys_release(keys);
	cr_expect_eq(try_secret("0123456789abcdef0123456789abcdef\n", 0640), 0, "%s", error.message);
}

Test(keys, none_means_no_peers)
{
	cr_expect_eq(try((struct peer_settings){0}), -EACCES);
	SAYS("this node has no peers");
	cr_expect(strstr(error.detail, "[peers]"), "%s", error.detail);
}

/* ---- secrets ---- */

Test(keys, a_secret_that_others_may_read)
{
	cr_expect_eq(try_secret("0123456789abcdef0123456789abcdef", 0644), -EACCES);
	SAYS("mode 0644");
	cr_expect_str_eq(error.detail, "chmod 0640, or 0600");
}

Test(keys, a_secret_that_the_group_may_write)
{
	cr_expect_eq(try_secret("0123456789abcdef0123456789abcdef", 0660), -EACCES);
}

/* Its line end does not count. */
Test(keys, a_secret_that_is_short)
{
	cr_expect_eq(try_secret("0123456789abcdef0123456789abcde\n", 0600), -EINVAL);
	SAYS("has 31 bytes");
	cr_expect_eq(try_secret("\n\n\n", 0600), -EINVAL);
}

Test(keys, a_secret_that_is_a_whole_file_of_something)
{
	static char much[PEER_SECRET_BYTES_MAX + 2];

	memset(much, 'x', sizeof(much) - 1);
	cr_expect_eq(try_secret(much, 0600), -EINVAL);
}

Test(keys, a_secret_that_is_not_there)
{
	cr_expect_eq(try(settings_of_secret("missing")), -ENOENT);
	SAYS("missing");
}

Test(keys, a_secret_that_is_no_file)
{
	mkdir(certificates_path("folder"), 0700);
	cr_expect_eq(try(settings_of_secret("folder")), -EINVAL);
	SAYS("is no file");
	rmdir(certificates_path("folder"));
}

/* ---- certificates ---- */

Test(keys, a_key_that_others_may_read)
{
	chmod(certificates_path("node1.key"), 0604);
	cr_expect_eq(try_files(), -EACCES);
}

Test(keys, a_key_of_another_certificate)
{
	certificate_make(&authority, "node2", &good);
	cr_assert_eq(rename(certificates_path("node2.key"), certificates_path("node1.key")), 0);
	cr_expect_eq(try_files(), -EINVAL);
	SAYS("is not the key of");
}

Test(keys, a_file_with_something_else)
{
	certificates_write("node1.key", "key", 0600);
	cr_expect_eq(try_files(), -EINVAL);
	SAYS("no key in PEM");
	certificates_write("authority.pem", "nobody", 0644);
	certificate_make(&authority, "node1", &good);
	cr_expect_eq(try_files(), -EINVAL);
	SAYS("no certificate in PEM");
	certificates_write("node1.pem", "nothing", 0644);
	cr_expect_eq(try_files(), -EINVAL);
	SAYS("no certificate in PEM");
}

Test(keys, a_file_that_is_missing)
{
	unlink(certificates_path("authority.pem"));
	cr_expect_eq(try_files(), -ENOENT);
	unlink(certificates_path("node1.key"));
	cr_expect_eq(try_files(), -ENOENT);
	unlink(certificates_path("node1.pem"));
	cr_expect_eq(try_files(), -ENOENT);
}

Test(keys, a_certificate_that_is_out_of_date)
{
	certificate_make(&authority, "node1", &(struct wanted){"DNS:node1.example", -7200, -3600, NULL});
	cr_expect_eq(try_files(), -EKEYREJECTED);
	SAYS("out of date");
	certificate_make(&authority, "node1", &(struct wanted){"DNS:node1.example", 3600, 7200, NULL});
	cr_expect_eq(try_files(), -EKEYREJECTED);
	SAYS("not valid yet");
}

/* One file may have an authority and the one that takes its place. */
Test(keys, several_authorities)
{
	struct authority next = authority_make("next");
	char text[8192] = "";
	FILE *file;

	file = fopen(certificates_path("authority.pem"), "re");
	cr_assert_gt(fread(text, 1, 4000, file), 0);
	fclose(file);
	file = fopen(certificates_path("next.pem"), "ae");
	fputs(text, file);
	fclose(file);
	cr_expect_eq(try(settings_of("node1", "next")), 0, "%s", error.message);
	authority_clear(&next);
}

static void append_damaged(const char *name)
{
	FILE *file = fopen(certificates_path(name), "ae");

	fputs("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", file);
	fclose(file);
}

/* Leaving it out would refuse the nodes of that authority, or send a chain that others do not trust, and nobody would know why. */
Test(keys, a_certificate_that_is_damaged_is_named_by_its_number)
{
	append_damaged("authority.pem");
	cr_expect_eq(try_files(), -EINVAL);
	SAYS("authority.pem: its certificate number 2 can't be read");
	append_damaged("node1.pem");
	cr_expect_eq(try_files(), -EINVAL);
	SAYS("node1.pem: its certificate number 2 can't be read");
}
