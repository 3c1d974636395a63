#include "exporter/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static struct address address;

Test(exporter_address, addresses_of_both_kinds)
{
	cr_assert_eq(address_parse("127.0.0.1:9464", &address), 0);
	cr_expect(address.is_loopback && address.socket.ss_family == AF_INET);
	cr_assert_eq(address_parse("0.0.0.0:80", &address), 0);
	cr_expect_not(address.is_loopback);
	cr_assert_eq(address_parse("[::1]:0", &address), 0);
	cr_expect(address.is_loopback && address.socket.ss_family == AF_INET6);
	cr_assert_eq(address_parse("[::ffff:127.0.0.1]:0", &address), 0);
	cr_expect(address.is_loopback, "an address of IPv4 in the form of IPv6");
	cr_assert_eq(address_parse("[::ffff:10.0.0.1]:0", &address), 0);
	cr_expect_not(address.is_loopback);
	cr_assert_eq(address_parse("[fe80::1]:65535", &address), 0);
	cr_expect_not(address.is_loopback);
}

Test(exporter_address, what_is_none)
{
	static const char *const wrong[] = {"",
					    "9464",
					    "127.0.0.1",
					    "127.0.0.1:",
					    "127.0.0.1:65536",
					    "127.0.0.1:-1",
					    "localhost:1",
					    "::1:9464",
					    "[::1:9464",
					    "[::1]9464",
					    "[127.0.0.1]:1",
					    "[]:1",
					    "1.2.3.4:1x"};
	char long_one[200];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_expect_eq(address_parse(wrong[i], &address), -EINVAL, "%s", wrong[i]);
	memset(long_one, '1', sizeof(long_one));
	strcpy(long_one + 190, ":80");
	cr_expect_eq(address_parse(long_one, &address), -EINVAL);
}

Test(exporter_address, the_kernel_chooses_a_port_for_0)
{
	unsigned port = 0;
	int fd;

	cr_assert_eq(address_parse("127.0.0.1:0", &address), 0);
	fd = address_listen(&address, "127.0.0.1:0", &port);
	cr_assert_geq(fd, 0);
	cr_expect_gt(port, 0);
	close(fd);
}

Test(exporter_address, hosts_that_are_this_machine)
{
	static const char *const own[] = {"localhost",    "LocalHost:1", "127.0.0.1",
					  "127.9.9.9:80", "[::1]",       "[::1]:9464"};
	static const char *const others[] = {
		"",           "evil",      "localhost.evil", "127.0.0.1.evil", "127.0.0.1:x",
		"[::1].evil", "128.0.0.1", "[::2]",          "localhost:80a",  "127.0.0.1:80:1"};
	char long_one[100];

	cr_expect(host_is_loopback(NULL), "no browser leaves it out");
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		cr_expect(host_is_loopback(own[i]), "%s", own[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		cr_expect_not(host_is_loopback(others[i]), "%s", others[i]);
	memset(long_one, 'a', sizeof(long_one));
	long_one[99] = '\0';
	cr_expect_not(host_is_loopback(long_one));
}

#define PARSE(...)                                                                                             \
	({                                                                                                     \
		char *argv_[] = {"gpuwm-exporter", __VA_ARGS__, NULL};                                         \
		static char *kept_[sizeof(argv_) / sizeof(argv_[0])];                                          \
		memcpy(kept_, argv_, sizeof(argv_));                                                           \
		options_parse(&options, (int)(sizeof(argv_) / sizeof(argv_[0])) - 1, kept_);                   \
	})

Test(exporter_options, flags_and_defaults, .init = cr_redirect_stderr)
{
	struct options options;

	cr_assert_eq(PARSE("--socket", "/s", "--listen=[::1]:1"), 0);
	cr_expect_str_eq(options.socket, "/s");
	cr_expect_str_eq(options.listen, "[::1]:1");
	cr_assert_eq(PARSE("--listen", ADDRESS_DEFAULT), 0);
	cr_expect_null(options.socket);
	cr_expect(options.address.is_loopback);
}
