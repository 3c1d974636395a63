#include "../../proto/wire/message.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct message m;
static const char *why;

static int read_bytes(const void *data, size_t bytes)
{
	message_clear(&m);
	why = NULL;
	return message_read(data, bytes, &m, &why);
}

static void clear(void)
{
	message_clear(&m);
}

TestSuite(message_read, .fini = clear);

static void accepts(const char *bytes, size_t count, unsigned line)
{
	cr_expect_eq(read_bytes(bytes, count), 0, "line %u: %s", line, why);
}

static void refuses(const char *bytes, size_t count, const char *part, unsigned line)
{
	cr_expect_eq(read_bytes(bytes, count), -EPROTO, "line %u", line);
	cr_expect(why && strstr(why, part), "line %u: %s", line, why);
	cr_expect(!m.zone && !m.body, "line %u", line);
}
#define ACCEPTS(literal) accepts(literal, sizeof(literal) - 1, __LINE__)
#define REFUSES(literal, part) refuses(literal, sizeof(literal) - 1, part, __LINE__)
/* A value as the parameter "a" of a request. */
#define WITH(literal) "\x94\x00\x01\xa1m\x91\x81\xa1\x61" literal

Test(message_read, a_request)
{
	ACCEPTS("\x94\x00\x05\xa4ping\x91\x80");
	cr_expect(m.type == MESSAGE_REQUEST && m.has_id && m.id == 5 && m.body);
	cr_expect_str_eq(m.method, "ping");
	ACCEPTS("\x94\x00\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa4ping\x91\x80");
	cr_expect_eq(m.id, UINT64_MAX);
	ACCEPTS("\xdd\x00\x00\x00\x04\xcc\x00\xce\x00\x00\x00\x05\xd9\x04ping\xdc\x00\x01\xde\x00\x00");
	cr_expect(m.type == MESSAGE_REQUEST && m.id == 5);
}

Test(message_read, a_response)
{
	ACCEPTS("\x94\x01\x05\xc0\x80");
	cr_expect(m.type == MESSAGE_RESPONSE && m.has_id && m.id == 5 && m.body && !m.error.code);
	cr_expect_str_eq(m.method, "");
	ACCEPTS("\x94\x01\xc0\x82\xa4"
		"code\xa6"
		"ENOENT\xa7message\xa4gone\xc0");
	cr_expect(!m.has_id && !m.body);
	cr_expect_eq(m.error.code, -ENOENT);
	cr_expect_str_eq(m.error.message, "gone");
	cr_expect_str_eq(m.error.detail, "");
}

Test(message_read, a_notification)
{
	ACCEPTS("\x93\x02\xa5"
		"event\x91\x81\xa3seq\x01");
	cr_expect(m.type == MESSAGE_NOTIFICATION && !m.has_id && m.body);
	cr_expect_str_eq(m.method, "event");
}

Test(message_read, all_values_that_are_no_extension)
{
	ACCEPTS(WITH("\xc0"));
	ACCEPTS(WITH("\xc2"));
	ACCEPTS(WITH("\xe0"));
	ACCEPTS(WITH("\xc4\x02xy"));
	ACCEPTS(WITH("\xc5\x00\x02xy"));
	ACCEPTS(WITH("\xc6\x00\x00\x00\x02xy"));
	ACCEPTS(WITH("\xca\x00\x00\x00\x00"));
	ACCEPTS(WITH("\xcb\x00\x00\x00\x00\x00\x00\x00\x00"));
	ACCEPTS(WITH("\xcd\x00\x01"));
	ACCEPTS(WITH("\xd0\x80"));
	ACCEPTS(WITH("\xd1\x80\x00"));
	ACCEPTS(WITH("\xd2\x80\x00\x00\x00"));
	ACCEPTS(WITH("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"));
	ACCEPTS(WITH("\xda\x00\x02xy"));
	ACCEPTS(WITH("\xdb\x00\x00\x00\x02xy"));
	ACCEPTS(WITH("\xdf\x00\x00\x00\x01\xa1x\x01"));
	ACCEPTS(WITH("\x82\xa1x\x01\xa2x\x00\x01")); /* keys of other lengths */
}

Test(message_read, extensions_are_refused)
{
	REFUSES(WITH("\xc1"), "reserved");
	REFUSES(WITH("\xc7\x01\x05x"), "extension");
	REFUSES(WITH("\xc8\x00\x01\x05x"), "extension");
	REFUSES(WITH("\xc9\x00\x00\x00\x01\x05x"), "extension");
	REFUSES(WITH("\xd4\x05x"), "extension");
	REFUSES(WITH("\xd8\x05xxxxxxxxxxxxxxxx"), "extension");
}

Test(message_read, every_beginning_of_a_message_is_refused)
{
	static const char whole[] = WITH("\x93\xcd\x01\x00\xd9\x02xy\xcb\x00\x00\x00\x00\x00\x00\x00\x00");

	ACCEPTS(WITH("\x93\xcd\x01\x00\xd9\x02xy\xcb\x00\x00\x00\x00\x00\x00\x00\x00"));
	for (size_t bytes = 0; bytes < sizeof(whole) - 1; bytes++)
		cr_expect_eq(read_bytes(whole, bytes), -EPROTO, "%zu bytes", bytes);
}

Test(message_read, trailing_bytes_are_refused)
{
	REFUSES("\x94\x00\x05\xa4ping\x91\x80\x00", "trail");
	REFUSES("\x94\x00\x05\xa4ping\x91\x80\xc0", "trail");
}

Test(message_read, huge_counts_are_refused_without_allocating)
{
	fail_alloc_arm(1);
	REFUSES("\xdd\xff\xff\xff\xff", "more entries");
	REFUSES("\xdf\xff\xff\xff\xff", "more entries");
	REFUSES("\xdc\xff\xff", "more entries");
	REFUSES("\x94\x00\x05\xdb\xff\xff\xff\xff", "ends early");
	REFUSES("\x94\x00\x05\xc6\xff\xff\xff\xff", "ends early");
	REFUSES(WITH("\xdd\x00\x00\x00\x02\x00"), "more entries");
	REFUSES(WITH("\x81\xa0"), "more entries");
	cr_expect(!fail_alloc_disarm());
}

/* A request with arrays inside each other: `depth` containers in all. */
static int read_nested(unsigned depth)
{
	char bytes[200] = "\x94\x00\x01\xa1m\x91\x81\xa1\x61";
	size_t count = 9;

	for (unsigned i = 3; i < depth; i++)
		bytes[count++] = '\x91';
	bytes[count++] = '\xc0';
	return read_bytes(bytes, count);
}

Test(message_read, depth)
{
	cr_expect_eq(read_nested(MESSAGE_DEPTH_MAX), 0);
	cr_expect_eq(read_nested(MESSAGE_DEPTH_MAX + 1), -EPROTO);
	cr_expect(strstr(why, "deeper than 8"));
	cr_expect_eq(read_nested(150), -EPROTO);
	REFUSES(WITH("\x91\x91\x91\x91\x91\x81\xa1x\xc0"), "deeper");
}

static char map_bytes[2000];

/* A request with a map of that many entries of four bytes, each with another key. */
static int read_map(unsigned entries)
{
	size_t count = 9;

	memcpy(map_bytes, "\x94\x00\x01\xa1m\x91\xde", 7);
	map_bytes[7] = (char)(entries >> 8);
	map_bytes[8] = (char)entries;
	for (unsigned i = 0; i < entries; i++) {
		map_bytes[count++] = '\xa2';
		map_bytes[count++] = (char)('a' + i / 26);
		map_bytes[count++] = (char)('a' + i % 26);
		map_bytes[count++] = '\xc0';
	}
	return read_bytes(map_bytes, count);
}

Test(message_read, maps_have_at_most_256_entries)
{
	cr_expect_eq(read_map(256), 0);
	cr_expect_eq(read_map(257), -EPROTO);
	cr_expect(strstr(why, "256"));
}

Test(message_read, a_key_that_comes_twice_is_found_in_maps_of_every_size)
{
	for (unsigned entries = 2; entries <= 256; entries++) {
		size_t last = 9 + 4 * (entries - 1);

		cr_assert_eq(read_map(entries), 0, "%u entries: %s", entries, why);
		for (unsigned twin = 0; twin < entries - 1; twin += 1 + entries / 7) {
			memcpy(map_bytes + last, map_bytes + 9 + 4 * twin, 3);
			cr_assert_eq(read_bytes(map_bytes, last + 4), -EPROTO, "%u and %u", twin, entries - 1);
			cr_assert(strstr(why, "twice"));
		}
	}
}

/* A request with an array of `count` nils: 8 elements are around them. */
static int read_nils(unsigned count, int (*read)(const void *, size_t, struct message *, const char **))
{
	static char bytes[12 + 65535];

	memcpy(bytes, WITH("\xdc"), 10);
	bytes[10] = (char)(count >> 8);
	bytes[11] = (char)count;
	memset(bytes + 12, 0xc0, count);
	message_clear(&m);
	return read(bytes, 12 + count, &m, &why);
}

Test(message_read, a_bounded_message_has_at_most_4096_keys_and_values)
{
	const unsigned around = 8;

	cr_expect_eq(read_nils(4096 - around, message_read_bounded), 0);
	cr_expect_eq(read_nils(4097 - around, message_read_bounded), -EPROTO);
	cr_expect(strstr(why, "4,096"));
	cr_expect(m.has_id && m.id == 1, "the refusal can be addressed");
	cr_expect_eq(read_nils(60000, message_read_bounded), -EPROTO);
	cr_expect_eq(read_nils(60000, message_read), 0, "a reply may be as large as a packet: %s", why);
}

Test(message_read, keys)
{
	REFUSES("\x94\x00\x01\xa1m\x91\x82\xa1\x61\x01\xa1\x61\x02", "twice");
	REFUSES(WITH("\x83\xa1x\x01\xa1y\x01\xd9\x01x\x01"), "twice");
	REFUSES(WITH("\x82\xa0\x01\xa0\x01"), "twice");
	REFUSES(WITH("\x81\x01\x01"), "no text");
	REFUSES(WITH("\x81\xc4\x01x\x01"), "no text");
	REFUSES(WITH("\x81\x91\x01\x01"), "no text");
	REFUSES(WITH("\x81\xd9"), "more entries");
	REFUSES(WITH("\x81\xd9\x05"), "ends early");
	ACCEPTS(WITH("\x82\xa1x\x81\xa1x\x01\xa1y\x01"));
}

Test(message_read, what_is_no_envelope)
{
	REFUSES("\xc0", "MessagePack-RPC");
	REFUSES("\x80", "MessagePack-RPC");
	REFUSES("\x90", "MessagePack-RPC");
	REFUSES("\x94\xa1x\x05\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\xff\x05\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\x02\x05\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\x03\x05\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x93\x00\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x95\x00\x05\xa4ping\x91\x80\xc0", "MessagePack-RPC");
}

Test(message_read, calls_that_are_none)
{
	REFUSES("\x94\x00\xc0\xa4ping\x91\x80", "MessagePack-RPC"); /* id */
	REFUSES("\x94\x00\xff\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\x00\xa1x\xa4ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\x00\x05\x01\x91\x80", "MessagePack-RPC"); /* method */
	REFUSES("\x94\x00\x05\xc4\x04ping\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\x00\x05\xa5ping\x00\x91\x80", "MessagePack-RPC");
	REFUSES("\x94\x00\x05\xa4ping\x80", "MessagePack-RPC"); /* params */
	REFUSES("\x94\x00\x05\xa4ping\x90", "MessagePack-RPC");
	REFUSES("\x94\x00\x05\xa4ping\x92\x80\x80", "MessagePack-RPC");
	REFUSES("\x94\x00\x05\xa4ping\x91\xc0", "MessagePack-RPC");
	REFUSES("\x93\x02\xa4ping\xc0", "MessagePack-RPC");
}

Test(message_read, responses_that_are_none)
{
	REFUSES("\x94\x01\xff\xc0\x80", "MessagePack-RPC");
	REFUSES("\x94\x01\x05\xc0\xc0", "MessagePack-RPC"); /* neither */
	REFUSES("\x94\x01\x05\x82\xa4"
		"code\xa3"
		"EIO\xa7message\xa1x\x80",
		"MessagePack-RPC"); /* both */
	REFUSES("\x94\x01\x05\xa3"
		"EIO\xc0",
		"MessagePack-RPC");
	REFUSES("\x94\x01\x05\xc0\x90", "MessagePack-RPC");
	REFUSES("\x94\x01\x05\x80\xc0", "MessagePack-RPC"); /* no code */
	REFUSES("\x94\x01\x05\x81\xa4"
		"code\xa3"
		"EIO\xc0",
		"MessagePack-RPC");
	REFUSES("\x94\x01\x05\x83\xa4"
		"code\xa3"
		"EIO\xa7message\xa1x\xa6"
		"detail\x01\xc0",
		"MessagePack-RPC");
}

Test(message_read, an_unknown_error_code_is_eio)
{
	ACCEPTS("\x94\x01\x05\x82\xa4"
		"code\xa6"
		"EFUTUR\xa7message\xa1x\xc0");
	cr_expect_eq(m.error.code, -EIO);
}

Test(message_read, long_methods_are_cut_and_so_unknown)
{
	ACCEPTS("\x94\x00\x05\xbf"
		"abcdefghijklmnopqrstuvwxyz12345"
		"\x91\x80");
	cr_expect_str_eq(m.method, "abcdefghijklmnopqrstuvwxyz12345");
	ACCEPTS("\x94\x00\x05\xd9\x22"
		"abcdefghijklmnopqrstuvwxyz12345xyz"
		"\x91\x80");
	cr_expect_str_eq(m.method, "abcdefghijklmnopqrstuvwxyz12345");
}

/* Refused, but the id is told. */
static void salvages(const char *bytes, size_t count, bool has_id, uint64_t id, unsigned line)
{
	cr_expect_eq(read_bytes(bytes, count), -EPROTO, "line %u", line);
	cr_expect_eq(m.has_id, has_id, "line %u", line);
	cr_expect_eq(m.id, id, "line %u: %llu", line, (unsigned long long)m.id);
}
#define SALVAGES(literal, id) salvages(literal, sizeof(literal) - 1, true, id, __LINE__)
#define LOSES(literal) salvages(literal, sizeof(literal) - 1, false, 0, __LINE__)

Test(message_read, the_id_of_a_refused_request_is_kept)
{
	SALVAGES("\x94\x00\x05\xa4ping\x91\x80\x00", 5);
	SALVAGES("\x94\x00\x05", 5);
	SALVAGES("\x94\x00\xcc\xff", 255);
	SALVAGES("\x94\x00\xcd\x01\x02\xc1", 0x102);
	SALVAGES("\x94\x00\xce\x01\x02\x03\x04\xc1", 0x1020304);
	SALVAGES("\x94\x00\xcf\x01\x02\x03\x04\x05\x06\x07\x08\xc1", 0x102030405060708);
	SALVAGES("\x94\x01\x05", 5);
	LOSES("");
	LOSES("\x94\x00");
	LOSES("\x93\x00\x05");
	LOSES("\x94\x02\x05");
	LOSES("\x94\x00\xcd\x01");
	LOSES("\x94\x00\xa1");
	LOSES("\x94\x00\xd0\x05\xc1");
}

Test(message_read, a_bare_map_as_the_body)
{
	cr_assert_eq(message_read_body("\x81\xa3seq\x07", 6, &m, &why), 0);
	cr_assert(m.body);
	cr_expect_eq(m.body->via.map.size, 1);
}

Test(message_read, a_body_that_is_none)
{
	cr_expect_eq(message_read_body("\x90", 1, &m, &why), -EPROTO);
	cr_expect_eq(message_read_body("\x80\x80", 2, &m, &why), -EPROTO);
	cr_expect(strstr(why, "trail"));
	cr_expect_eq(message_read_body("", MESSAGE_BODY_MAX + 1, &m, &why), -EPROTO);
	cr_expect(strstr(why, "64 MiB"));
	cr_expect(!m.zone && !m.body);
}

Test(message_read, survives_every_failing_allocation)
{
	static char large[40000] = WITH("\xdc\x9c\x00"); /* 39,936 nils: chunks of the zone */
	unsigned n = 1;
	int r;

	memset(large + 12, 0xc0, 39936);
	for (;; n++) {
		fail_alloc_arm(n);
		r = read_bytes(large, 12 + 39936);
		if (!fail_alloc_disarm())
			break;
		cr_expect_eq(r, -ENOMEM);
		cr_expect_str_eq(why, "out of memory");
		cr_expect(m.has_id && m.id == 1);
	}
	cr_expect_gt(n, 2);
	cr_expect_eq(r, 0);
}
