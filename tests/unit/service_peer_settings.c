/* The section [peers] of gpuwmd.conf. */
#include "service/peers.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct peer_settings settings;
static struct error error;

static void end(void)
{
	peer_settings_clear(&settings);
}

TestSuite(peer_settings, .fini = end);

static int set(const char *key, const char *value)
{
	return peer_settings_set(&settings, key, value, &error);
}

/* ---- values ---- */

static const struct {
	const char *key, *value;
} right[] = {
	{"certificate", "/etc/gpuwm/peer.pem"},
	{"secret", "/a"},
	{"names", "node1"},
	{"names", "*.rack1.example.org"},
	{"peer", "node7"},
	{"peer", "node7:1"},
	{"peer", "10.0.0.7"},
	{"peer", "fd00::7"},
	{"peer", "[fd00::7]"},
	{"peer", "[fd00::7]:65535"},
	{"dns", "nodes.example.org:9465"},
	{"listen", "0.0.0.0:0"},
	{"listen", "[::]:9465"},
	{"takers", "1"},
	{"encrypt", "yes"},
	{"encrypt", "no"},
};

static const struct {
	const char *key, *value, *says;
} wrong[] = {
	{"certificate", "peer.pem", "no absolute path"},
	{"names", "*", "no name of a certificate"},
	{"names", "*.", "no name of a certificate"},
	{"names", "a b", "no name of a certificate"},
	{"names", "fd00::7", "no name of a certificate"},
	{"peer", "", "no host"},
	{"peer", "node7:", "no host"},
	{"peer", "node7:0", "no host"},
	{"peer", "node7:65536", "no host"},
	{"peer", "node7:x", "no host"},
	{"peer", "node/7", "no host"},
	{"peer", "..", "no host"},
	{"peer", "-node", "no host"},
	{"peer", "[fd00::7", "no host"},
	{"peer", "[fd00::7]x", "no host"},
	{"listen", "node7:9465", "no address in digits"},
	{"takers", "0", "no number from 1 to 1024"},
	{"takers", "many", "no number"},
	{"encrypt", "perhaps", "neither yes nor no"},
	{"unknown", "1", "no key \"unknown\""},
};

Test(peer_settings, values_that_are_right)
{
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		cr_expect_eq(set(right[i].key, right[i].value), 0, "%s: %s", right[i].value, error.message);
	cr_expect_str_eq(settings.certificate, "/etc/gpuwm/peer.pem");
	cr_expect_eq(settings.peers.count, 6);
	cr_expect_str_eq(settings.listen, "[::]:9465");
	cr_expect_eq(settings.takers, 1);
	cr_expect(settings.clear);
}

Test(peer_settings, values_that_are_wrong)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		cr_expect_eq(set(wrong[i].key, wrong[i].value), -EINVAL, "%s", wrong[i].value);
		cr_expect(strstr(error.message, wrong[i].says), "%s: %s", wrong[i].value, error.message);
	}
}

Test(peer_settings, a_host_that_is_too_long)
{
	static char host[PEER_HOST_BYTES_MAX + 2];

	memset(host, 'a', PEER_HOST_BYTES_MAX + 1);
	cr_expect_eq(set("peer", host), -EINVAL);
	host[PEER_HOST_BYTES_MAX] = '\0';
	cr_expect_eq(set("peer", host), 0, "%s", error.message);
}

Test(peer_settings, a_list_has_an_end_and_nothing_twice)
{
	char host[32];

	for (int i = 0; i < PEER_LIST_MAX; i++) {
		snprintf(host, sizeof(host), "node%d", i);
		cr_assert_eq(set("peer", host), 0);
		cr_assert_eq(set("peer", host), 0);
	}
	cr_expect_eq(settings.peers.count, PEER_LIST_MAX);
	cr_expect_eq(set("peer", "more"), -EINVAL);
	cr_expect(strstr(error.message, "at most 64"), "%s", error.message);
}

Test(peer_settings, hosts_and_ports)
{
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;

	cr_expect_eq(peer_address_parse("node7", host, &port), 0);
	cr_expect(strcmp(host, "node7") == 0 && port == PEER_PORT);
	cr_expect_eq(peer_address_parse("[fd00::7]:12", host, &port), 0);
	cr_expect(strcmp(host, "fd00::7") == 0 && port == 12);
	cr_expect_eq(peer_address_parse("fd00::7", host, &port), 0);
	cr_expect(strcmp(host, "fd00::7") == 0 && port == PEER_PORT);
	cr_expect_eq(peer_address_parse("[fd00::7]:0", host, &port), -EINVAL);
	cr_expect_eq(peer_listen_parse("[fd00::7]:0", host, &port), 0);
	cr_expect(strcmp(host, "fd00::7") == 0 && port == 0);
}

/* ---- together ---- */

static int check(void)
{
	return peer_settings_check(&settings, &error);
}

Test(peer_settings, nothing_is_fine_and_off)
{
	cr_expect_eq(check(), 0);
	cr_expect_not(peer_settings_on(&settings));
}

Test(peer_settings, certificate_key_and_authority_belong_together)
{
	set("certificate", "/c");
	cr_expect_eq(check(), -EINVAL);
	cr_expect(strstr(error.message, "without its key"), "%s", error.message);
	set("key", "/k");
	cr_expect_eq(check(), -EINVAL);
	cr_expect(strstr(error.message, "no authority"), "%s", error.message);
	set("authority", "/a");
	cr_expect_eq(check(), 0, "%s", error.message);
	cr_expect(peer_settings_on(&settings));
	set("secret", "/s");
	cr_expect_eq(check(), -EINVAL);
	cr_expect(strstr(error.message, "both a certificate and a secret"), "%s", error.message);
}

Test(peer_settings, a_key_without_a_certificate)
{
	set("key", "/k");
	cr_expect_eq(check(), -EINVAL);
	cr_expect(strstr(error.message, "no certificate"), "%s", error.message);
}

Test(peer_settings, a_secret_has_no_names)
{
	set("secret", "/s");
	cr_expect_eq(check(), 0);
	set("names", "node1");
	cr_expect_eq(check(), -EINVAL);
	cr_expect(strstr(error.message, "tells no names"), "%s", error.message);
}

/* ---- the file ---- */

static int read_text(const char *text)
{
	char path[] = "/tmp/gpuwm-peers-XXXXXX";
	int fd = mkstemp(path), r;

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	r = peer_settings_read(path, &settings, &error);
	unlink(path);
	return r;
}

Test(peer_settings, other_sections_are_for_others)
{
	cr_expect_eq(
		read_text(
			"[loader]\nroot = /m\n[peers]\nsecret = /s\npeer = a\npeer = b:1\n[unknown]\nx = 1\n"),
		0, "%s", error.message);
	cr_expect_eq(settings.secrets.count, 1);
	cr_expect_eq(settings.peers.count, 2);
}

Test(peer_settings, an_error_names_the_line)
{
	cr_expect_eq(read_text("[peers]\n\npeer = a b\n"), -EINVAL);
	cr_expect(strstr(error.message, ":3: [peers] peer = a b: is no host"), "%s", error.message);
	cr_expect_eq(read_text("[peers]\nkey = /k\n"), -EINVAL);
	cr_expect_eq(peer_settings_read("/no/such/file", &settings, &error), -ENOENT);
}
