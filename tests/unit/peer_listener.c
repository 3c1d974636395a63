/* Where gpuwm-peer listens. */
#include "peer/listener.h"
#include "peer/port.h"
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_storage bound_to(const char *address)
{
	struct sockaddr_storage bound = {0};
	socklen_t bytes = sizeof(bound);
	struct error error;
	unsigned port = 0;
	int fd = port_open(address, false, &port, &error);

	cr_assert_geq(fd, 0, "%s: %s", address, error.message);
	cr_expect_gt(port, 0);
	getsockname(fd, (struct sockaddr *)&bound, &bytes);
	close(fd);
	return bound;
}

static bool has_ipv6(void)
{
	const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&loopback, sizeof(loopback)) == 0;

	if (fd >= 0)
		close(fd);
	return has;
}

Test(peer_listener, is_reached_at_its_address_only)
{
	struct sockaddr_storage bound = bound_to("127.0.0.1:0");

	cr_expect_eq(ntohl(((const struct sockaddr_in *)&bound)->sin_addr.s_addr), INADDR_LOOPBACK);
	if (!has_ipv6())
		return;
	bound = bound_to("[::1]:0");
	cr_expect(IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&bound)->sin6_addr));
}

/* The port is open already: what is told of it stays true. */
Test(peer_listener, keeps_its_address_when_settings_change)
{
	const struct server server = {.program = "test"};
	struct peer_settings before = {0}, after = {0};
	struct listener listener;
	struct error error;
	unsigned port;

	cr_assert_eq(peer_settings_set(&before, "listen", "127.0.0.1:0", &error), 0);
	cr_assert_eq(peer_settings_set(&after, "names", "node.example", &error), 0);
	listener_begin(&listener, &server, port_open(before.listen, false, &port, &error), &before, NULL);
	listener_change(&listener, &after, NULL);
	cr_assert_not_null(listener.settings.listen);
	cr_expect_str_eq(listener.settings.listen, "127.0.0.1:0");
	cr_expect_eq(listener.settings.names.count, 1);
	listener_end(&listener);
}

/* ---- what a connection's thread has of OpenSSL's ---- */

static struct listener accepting;
static pthread_t main_thread;
/* OpenSSL's list of the errors of the connection's thread: made; given back while the connection still had its place. */
static _Atomic(void *) errors_made;
static atomic_bool errors_given_back;

static void *count_malloc(size_t bytes, const char *file, int line)
{
	void *memory = malloc(bytes);

	(void)line;
	if (!pthread_equal(pthread_self(), main_thread) && !errors_made && strstr(file, "err.c"))
		errors_made = memory;
	return memory;
}

static void *count_realloc(void *memory, size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return realloc(memory, bytes);
}

static void count_free(void *memory, const char *file, int line)
{
	(void)file;
	(void)line;
	if (memory && memory == errors_made)
		errors_given_back = places_count(&accepting.places) == 1;
	free(memory);
}

static void connect_and_talk_nonsense(unsigned port)
{
	int fd = plain_connect(port);

	cr_assert_eq(write(fd, "nonsense", 8), 8);
	shutdown(fd, SHUT_WR);
	listener_accept(&accepting);
	close(fd);
}

/* gpuwm-peer exits when no connection has a place: OpenSSL could not give back then what threads still have. */
Test(peer_listener, a_connection_gives_back_what_openssl_has_for_its_thread)
{
	const struct server server = {.program = "test"};
	struct peer_settings settings = {0};
	struct error error;
	unsigned port;
	int fd;

	main_thread = pthread_self();
	cr_assert_eq(CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free), 1);
	certificates_begin();
	certificates_write("secret", "a-secret-of-32-bytes-for-one-test", 0600);
	fd = port_open("127.0.0.1:0", false, &port, &error);
	listener_begin(&accepting, &server, fd, &settings, keys_of(settings_of_secret("secret")));
	connect_and_talk_nonsense(port);
	listener_end(&accepting);
	certificates_end();
	cr_expect_not_null(errors_made);
	cr_expect(errors_given_back);
}
