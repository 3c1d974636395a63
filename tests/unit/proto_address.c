#include "../../proto/address.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static bool wrong(const char *address, const char *part)
{
	const char *why = address_wrong(address);

	return why && strstr(why, part);
}

Test(address, allows_the_grammar)
{
	cr_expect_null(address_wrong("10.0.0.5:8000"));
	cr_expect_null(address_wrong("worker-5.rack_2:1"));
	cr_expect_null(address_wrong("[::1]:65535"));
	cr_expect_null(address_wrong("[::ffff:255.255.255.255]:80"));
	cr_expect_null(address_wrong("unix:/run/worker@1/a-b_c+d.sock"));
}

Test(address, refuses_what_the_grammar_lacks)
{
	cr_expect(wrong("", "is empty"));
	cr_expect(wrong("host", "no port"));
	cr_expect(wrong("host:", "no port"));
	cr_expect(wrong("host:0", "no port"));
	cr_expect(wrong("host:080", "no port"));
	cr_expect(wrong("host:65536", "no port"));
	cr_expect(wrong("host:123456", "no port"));
	cr_expect(wrong("host:80x", "no port"));
	cr_expect(wrong("host: 80", "no port"));
	cr_expect(wrong(":80", "no host"));
	cr_expect(wrong("::1:80", "no host"));
	cr_expect(wrong("ho st:80", "a host with a character"));
	cr_expect(wrong("a;b:80", "a host with a character"));
	cr_expect(wrong("[::1", "IPv6"));
	cr_expect(wrong("[127.0.0.1]:80", "IPv6"));
	cr_expect(wrong("[fe80::1%eth0]:80", "IPv6"));
	cr_expect(wrong("[::1]80", "no port"));
	cr_expect(wrong("[::1]:", "no port"));
	cr_expect(wrong("unix:run/s", "no absolute path"));
	cr_expect(wrong("unix:", "no absolute path"));
	cr_expect(wrong("unix:/a b", "a path with a character"));
	cr_expect(wrong("unix:/a\n", "a path with a character"));
}

Test(address, has_as_many_bytes_as_a_socket_and_a_text)
{
	char text[ADDRESS_BYTES_MAX + 2];

	memset(text, 'a', sizeof(text));
	snprintf(text, sizeof(text), "unix:/%0*d", 106, 0);
	cr_expect_null(address_wrong(text));
	snprintf(text, sizeof(text), "unix:/%0*d", 107, 0);
	cr_expect(wrong(text, "more than 107 bytes"));
	snprintf(text, sizeof(text), "%0*d:1", ADDRESS_BYTES_MAX - 2, 0);
	cr_expect_null(address_wrong(text));
	snprintf(text, sizeof(text), "%0*d:1", ADDRESS_BYTES_MAX - 1, 0);
	cr_expect(wrong(text, "longer than 128"));
	snprintf(text, sizeof(text), "[%0*d]:1", 100, 0);
	cr_expect(wrong(text, "IPv6"));
}

Test(address, of_an_ip_is_told_from_others)
{
	char ip[ADDRESS_IP_TEXT];
	unsigned port;

	cr_assert(address_ip("10.0.0.5:8000", ip, &port));
	cr_expect_str_eq(ip, "10.0.0.5");
	cr_expect_eq(port, 8000);
	cr_assert(address_ip("[fd00::5]:443", ip, &port));
	cr_expect_str_eq(ip, "fd00::5");
	cr_expect_eq(port, 443);
	cr_assert(address_ip("[0:0::0:1]:1", ip, &port));
	cr_expect_str_eq(ip, "::1");
	cr_expect_not(address_ip("localhost:80", ip, &port));
	cr_expect_not(address_ip("unix:/s:80", ip, &port));
	cr_expect_not(address_ip("10.0.0.5", ip, &port), "it is no address");
}
