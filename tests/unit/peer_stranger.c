/* Whoever can't prove who they are does not get a link, in no way and on no side. */
#include "peer/port.h"
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct wanted good = {.names = "DNS:node1.example,IP:127.0.0.1", .begins = -60, .ends = 3600};

static struct authority authority, other;
static struct peer_keys *keys, *foreign; /* the server's, and the client's */
static struct accepting server;
static struct link *client;
static struct error error;

static void begin(void)
{
	certificates_begin();
	authority = authority_make("authority");
	other = authority_make("other");
	certificate_make(&authority, "node1", &good);
	keys = keys_of(settings_of("node1", "authority"));
}

static void end(void)
{
	link_close(client);
	accepting_end(&server);
	peer_keys_release(keys);
	peer_keys_release(foreign);
	authority_clear(&authority);
	authority_clear(&other);
	certificates_end();
}

TestSuite(stranger, .init = begin, .fini = end);

/* The client has these keys, and asks for a host of this name. */
static int meet(struct peer_settings settings, const char *name)
{
	int r;

	foreign = keys_of(settings);
	accepting_begin(&server, keys, 5000);
	r = pair_connect(&server, foreign, name, &client, &error);
	accepting_wait(&server);
	return r;
}

static void expect_refusal(int r, const char *word)
{
	cr_expect_eq(r, -EKEYREJECTED, "%d: %s", r, error.message);
	cr_expect(strstr(error.message, word), "%s", error.message);
	cr_expect_null(client);
	cr_expect_null(server.link);
	cr_expect_lt(server.result, 0);
}

/* ---- with gpuwm on both sides ---- */

Test(stranger, a_server_of_another_authority_is_refused)
{
	expect_refusal(meet(settings_of("node1", "other"), "node1.example"), "its certificate is refused");
	cr_expect(strstr(error.detail, "the authority that signed it"), "%s", error.detail);
}

Test(stranger, a_client_of_another_authority_is_refused)
{
	struct peer_settings settings = {0};

	certificate_make(&other, "foreign", &good);
	settings = settings_of("foreign", "authority");
	expect_refusal(meet(settings, "node1.example"), "refused this node's certificate");
	cr_expect_eq(server.result, -EKEYREJECTED);
	cr_expect(strstr(server.error.message, "its certificate is refused"), "%s", server.error.message);
}

Test(stranger, a_server_with_another_name_is_refused)
{
	expect_refusal(meet(settings_of("node1", "authority"), "node2.example"), "hostname mismatch");
	cr_expect(strstr(error.detail, "subjectAltName"), "%s", error.detail);
}

Test(stranger, a_server_with_another_address_is_refused)
{
	expect_refusal(meet(settings_of("node1", "authority"), "127.0.0.2"), "IP address mismatch");
}

/* The common name is no name of a host. */
Test(stranger, a_server_without_alternative_names_is_refused)
{
	certificate_make(&authority, "nameless", &(struct wanted){.begins = -60, .ends = 3600});
	peer_keys_release(keys);
	keys = keys_of(settings_of("nameless", "authority"));
	expect_refusal(meet(settings_of("node1", "authority"), "nameless"), "hostname mismatch");
}

Test(stranger, a_certificate_for_servers_only_takes_nothing)
{
	certificate_make(&authority, "server", &(struct wanted){"DNS:node1.example", -60, 3600, "serverAuth"});
	expect_refusal(meet(settings_of("server", "authority"), "node1.example"),
		       "refused this node's certificate");
	cr_expect(strstr(server.error.detail, "extendedKeyUsage"), "%s", server.error.detail);
}

Test(stranger, another_secret_is_refused)
{
	certificates_write("one", "one-one-one-one-one-one-one-one-", 0600);
	certificates_write("two", "two-two-two-two-two-two-two-two-", 0600);
	peer_keys_release(keys);
	keys = keys_of(settings_of_secret("one"));
	expect_refusal(meet(settings_of_secret("two"), NULL), "secret");
	cr_expect(strstr(server.error.message, "does not have this node's secret"), "%s", server.error.message);
}

Test(stranger, a_secret_is_no_certificate)
{
	certificates_write("one", "one-one-one-one-one-one-one-one-", 0600);
	cr_expect_lt(meet(settings_of_secret("one"), NULL), 0);
	cr_expect_null(client);
	cr_expect_null(server.link);
}

Test(stranger, a_certificate_is_no_secret)
{
	certificates_write("one", "one-one-one-one-one-one-one-one-", 0600);
	peer_keys_release(keys);
	keys = keys_of(settings_of_secret("one"));
	cr_expect_lt(meet(settings_of("node1", "authority"), "node1.example"), 0);
	cr_expect_null(client);
	cr_expect_null(server.link);
}

/* ---- with OpenSSL alone on the other side ---- */

/* A client whose TLS the test makes. Returns whether a handshake, as far as the client knows, came off. */
static bool shake(SSL_CTX *tls)
{
	SSL *ssl = SSL_new(tls);
	bool shaken;
	char byte;
	int fd;

	accepting_begin(&server, keys, 5000);
	fd = plain_connect(server.port);
	SSL_set_fd(ssl, fd);
	/* With TLS 1.3 the client is content before the server has judged its certificate: a read tells. */
	shaken = SSL_connect(ssl) == 1 && SSL_read(ssl, &byte, 1) == 1;
	accepting_wait(&server);
	SSL_free(ssl);
	close(fd);
	SSL_CTX_free(tls);
	return shaken;
}

static SSL_CTX *client_with(const char *certificate)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
	char file[64];

	SSL_CTX_set_alpn_protos(tls, (const unsigned char *)"\012gpuwm-peer", 11);
	if (!certificate)
		return tls;
	snprintf(file, sizeof(file), "%s.pem", certificate);
	SSL_CTX_use_certificate_file(tls, certificates_path(file), SSL_FILETYPE_PEM);
	snprintf(file, sizeof(file), "%s.key", certificate);
	SSL_CTX_use_PrivateKey_file(tls, certificates_path(file), SSL_FILETYPE_PEM);
	return tls;
}

static void expect_server_refuses(SSL_CTX *tls, int code)
{
	cr_expect_not(shake(tls));
	cr_expect_null(server.link);
	cr_expect_eq(server.result, code, "%d: %s", server.result, server.error.message);
}

/* What the tests below take away one by one. */
Test(stranger, a_client_of_openssl_is_no_stranger_if_it_has_all)
{
	cr_expect(shake(client_with("node1")));
	cr_expect_eq(server.result, 0, "%s", server.error.message);
}

Test(stranger, without_a_certificate)
{
	expect_server_refuses(client_with(NULL), -EKEYREJECTED);
	cr_expect(strstr(server.error.message, "no certificate"), "%s", server.error.message);
}

Test(stranger, with_a_certificate_that_is_out_of_date)
{
	certificate_make(&authority, "old", &(struct wanted){"DNS:node1.example", -7200, -3600, NULL});
	expect_server_refuses(client_with("old"), -EKEYREJECTED);
	cr_expect(strstr(server.error.message, "expired"), "%s", server.error.message);
}

Test(stranger, with_a_certificate_that_is_not_valid_yet)
{
	certificate_make(&authority, "new", &(struct wanted){"DNS:node1.example", 3600, 7200, NULL});
	expect_server_refuses(client_with("new"), -EKEYREJECTED);
}

Test(stranger, with_tls_1_2)
{
	SSL_CTX *tls = client_with("node1");

	SSL_CTX_set_max_proto_version(tls, TLS1_2_VERSION);
	expect_server_refuses(tls, -EPROTO);
}

Test(stranger, with_another_protocol_inside)
{
	SSL_CTX *tls = client_with("node1");

	SSL_CTX_set_alpn_protos(tls, (const unsigned char *)"\010http/1.1", 9);
	expect_server_refuses(tls, -EPROTO);
}

Test(stranger, with_no_protocol_named_inside)
{
	SSL_CTX *tls = client_with("node1");

	SSL_CTX_set_alpn_protos(tls, NULL, 0);
	expect_server_refuses(tls, -EPROTO);
}

/* ---- without TLS ---- */

static void expect_end(const char *sent, size_t bytes, bool ends, int code)
{
	char rest[256];
	int fd;

	accepting_begin(&server, keys, 200);
	fd = plain_connect(server.port);
	cr_assert_eq(send(fd, sent, bytes, 0), (ssize_t)bytes);
	if (ends)
		shutdown(fd, SHUT_WR);
	accepting_wait(&server);
	cr_expect_eq(server.result, code, "%d: %s", server.result, server.error.message);
	while (recv(fd, rest, sizeof(rest), 0) > 0)
		;
	close(fd);
}

Test(stranger, with_plain_text)
{
	expect_end("GET / HTTP/1.1\r\n\r\n", 18, false, -EPROTO);
}

Test(stranger, who_says_nothing)
{
	expect_end("", 0, false, -ETIMEDOUT);
}

Test(stranger, who_leaves_without_a_word)
{
	expect_end("", 0, true, -ENOLINK);
}

Test(stranger, who_begins_and_does_not_go_on)
{
	expect_end("\x16\x03\x01\x02\x00\x01", 6, false, -ETIMEDOUT);
}

Test(stranger, who_begins_and_leaves)
{
	expect_end("\x16\x03\x01\x02\x00\x01", 6, true, -ECONNRESET);
}

static void *trickle(void *user)
{
	static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
	int fd = *(int *)user;

	for (size_t i = 0; send(fd, hello + i % 11, 1, MSG_NOSIGNAL) == 1; i++)
		usleep(20000);
	return NULL;
}

/* The time is for the whole handshake, not for each byte. */
Test(stranger, who_sends_a_byte_now_and_then)
{
	pthread_t thread;
	int fd;

	accepting_begin(&server, keys, 200);
	fd = plain_connect(server.port);
	pthread_create(&thread, NULL, trickle, &fd);
	accepting_wait(&server);
	cr_expect_eq(server.result, -ETIMEDOUT, "%d: %s", server.result, server.error.message);
	shutdown(fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(fd);
}

/* ---- who is not there ---- */

Test(stranger, nobody_listens)
{
	accepting_begin(&server, keys, 200);
	close(plain_connect(server.port));
	accepting_wait(&server);
	close(server.fd);
	server.fd = -1;
	cr_expect_eq(pair_connect(&server, keys, NULL, &client, &error), -ECONNREFUSED, "%s", error.message);
}

Test(stranger, a_host_without_an_address)
{
	const struct link_target target = {"no-such-host.invalid", 1, NULL};

	accepting_begin(&server, keys, 200);
	close(plain_connect(server.port));
	cr_expect_eq(link_connect(keys, &target, 200, &client, &error), -ENOENT, "%s", error.message);
	cr_expect(strstr(error.message, "no-such-host.invalid"), "%s", error.message);
}

Test(stranger, a_host_to_which_no_way_leads)
{
	const struct link_target target = {"255.255.255.255", 1, NULL};

	accepting_begin(&server, keys, 200);
	close(plain_connect(server.port));
	cr_expect_eq(link_connect(keys, &target, 200, &client, &error), -EHOSTUNREACH, "%s", error.message);
}

/* It takes the connection, and says nothing. */
Test(stranger, a_server_that_says_nothing)
{
	struct link_target target = {"127.0.0.1", 0, NULL};

	accepting_begin(&server, keys, 200);
	close(plain_connect(server.port));
	accepting_wait(&server);
	target.port = server.port;
	cr_expect_eq(link_connect(keys, &target, 100, &client, &error), -ETIMEDOUT, "%s", error.message);
}

/* ---- a server that has a problem of its own ---- */

static const unsigned char internal_error[] = {21, 3, 3, 0, 2, 2, 80}; /* a fatal alert */

static void *alert_in_handshake(void *listener)
{
	int fd = accept4(*(const int *)listener, NULL, NULL, SOCK_CLOEXEC);
	char hello[4096];

	if (read(fd, hello, sizeof(hello)) > 0)
		send(fd, internal_error, sizeof(internal_error), MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

/* As OpenSSL does without memory: whoever asks again later may get an answer. */
Test(stranger, a_server_that_fails_in_the_handshake_is_none)
{
	unsigned port = 0;
	int fd = port_open("127.0.0.1:0", false, &port, &error), r;
	struct link_target target = {"127.0.0.1", port, "node1.example"};
	pthread_t thread;

	fcntl(fd, F_SETFL, 0); /* accept waits */
	cr_assert_eq(pthread_create(&thread, NULL, alert_in_handshake, &fd), 0);
	r = link_connect(keys, &target, 5000, &client, &error);
	pthread_join(thread, NULL);
	close(fd);
	cr_expect_eq(r, -ECONNRESET, "%d: %s", r, error.message);
	cr_expect(strstr(error.message, "could not go on"), "%s", error.message);
}
