#include "message.h"

#include "../index/key_set.h"
#include "../../base/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum kind { KIND_OTHER, KIND_TEXT, KIND_ARRAY, KIND_MAP, KIND_REFUSED };

/* What the first byte of a value says: how many bytes of length or value follow it. */
struct head {
	enum kind kind;
	unsigned size_bytes; /* the bytes of the length field */
	/* if there is no length field: the length of a text, a count, or the bytes of value to
	 * skip */
	uint64_t size;
	bool binary;
};

struct scan {
	const uint8_t *at, *end;
	uint64_t elements_left;
	const char *why;
};

static int scan_refuse(struct scan *s, const char *why)
{
	s->why = why;
	return -EPROTO;
}

static struct head head_of(uint8_t first)
{
	if (first <= 0x7f || first >= 0xe0)
		return (struct head){.kind = KIND_OTHER};
	if (first <= 0x8f)
		return (struct head){.kind = KIND_MAP, .size = first & 15};
	if (first <= 0x9f)
		return (struct head){.kind = KIND_ARRAY, .size = first & 15};
	if (first <= 0xbf)
		return (struct head){.kind = KIND_TEXT, .size = first & 31};
	switch (first) {
	case 0xc0: /* nil */
	case 0xc2: /* false */
	case 0xc3: /* true */
		return (struct head){.kind = KIND_OTHER};
	case 0xc4: /* bin 8, 16, 32 */
	case 0xc5:
	case 0xc6:
		return (struct head){.kind = KIND_TEXT, .size_bytes = 1u << (first - 0xc4), .binary = true};
	case 0xca: /* float */
		return (struct head){.kind = KIND_OTHER, .size = 4};
	case 0xcb: /* double */
		return (struct head){.kind = KIND_OTHER, .size = 8};
	case 0xcc: /* uint 8 to 64 */
	case 0xcd:
	case 0xce:
	case 0xcf:
		return (struct head){.kind = KIND_OTHER, .size = 1u << (first - 0xcc)};
	case 0xd0: /* int 8 to 64 */
	case 0xd1:
	case 0xd2:
	case 0xd3:
		return (struct head){.kind = KIND_OTHER, .size = 1u << (first - 0xd0)};
	case 0xd9: /* str 8, 16, 32 */
	case 0xda:
	case 0xdb:
		return (struct head){.kind = KIND_TEXT, .size_bytes = 1u << (first - 0xd9)};
	case 0xdc: /* array 16, 32 */
	case 0xdd:
		return (struct head){.kind = KIND_ARRAY, .size_bytes = 2u << (first - 0xdc)};
	case 0xde: /* map 16, 32 */
	case 0xdf:
		return (struct head){.kind = KIND_MAP, .size_bytes = 2u << (first - 0xde)};
	default: /* ext, and the byte 0xc1, which is never used */
		return (struct head){.kind = KIND_REFUSED};
	}
}

/* Reads a head with its length field. It does not skip what follows. */
static int scan_head(struct scan *s, struct head *ret)
{
	struct head head;

	if (s->at == s->end)
		return scan_refuse(s, "it ends early");
	if (s->elements_left-- == 0)
		return scan_refuse(s, "it has more than 4,096 keys and values");
	head = head_of(*s->at++);
	if (head.kind == KIND_REFUSED)
		return scan_refuse(s, "it has an extension type or the reserved byte 0xc1");
	if ((size_t)(s->end - s->at) < head.size_bytes)
		return scan_refuse(s, "it ends early");
	if (head.size_bytes)
		head.size = 0;
	for (unsigned i = 0; i < head.size_bytes; i++)
		head.size = head.size << 8 | *s->at++;
	if (head.kind == KIND_OTHER || head.kind == KIND_TEXT) {
		if ((uint64_t)(s->end - s->at) < head.size)
			return scan_refuse(s, "it ends early");
	} else if ((uint64_t)(s->end - s->at) < head.size * (head.kind == KIND_MAP ? 2 : 1)) {
		return scan_refuse(s, "it announces more entries than it has bytes");
	}
	*ret = head;
	return 0;
}

static int scan_value(struct scan *s, unsigned depth);

static int scan_map(struct scan *s, uint64_t count, unsigned depth)
{
	struct key_set keys;

	if (count > MESSAGE_MAP_MAX)
		return scan_refuse(s, "a map has more than 256 entries");
	key_set_init(&keys, (unsigned)count);
	for (uint64_t i = 0; i < count; i++) {
		struct head head;
		int r = scan_head(s, &head);

		if (r < 0)
			return r;
		if (head.kind != KIND_TEXT || head.binary)
			return scan_refuse(s, "a key of a map is no text");
		if (!key_set_add(&keys, s->at, head.size))
			return scan_refuse(s, "a map has a key twice");
		s->at += head.size;
		r = scan_value(s, depth);
		if (r < 0)
			return r;
	}
	return 0;
}

static int scan_value(struct scan *s, unsigned depth)
{
	struct head head;
	int r = scan_head(s, &head);

	if (r < 0)
		return r;
	if (head.kind == KIND_OTHER || head.kind == KIND_TEXT) {
		s->at += head.size;
		return 0;
	}
	if (depth == MESSAGE_DEPTH_MAX)
		return scan_refuse(s, "it nests deeper than 8");
	if (head.kind == KIND_MAP)
		return scan_map(s, head.size, depth + 1);
	for (uint64_t i = 0; i < head.size; i++) {
		r = scan_value(s, depth + 1);
		if (r < 0)
			return r;
	}
	return 0;
}

int message_scan(const void *data, size_t bytes, uint64_t elements_max, const char **ret_why)
{
	struct scan s = {data, (const uint8_t *)data + bytes, elements_max, NULL};
	int r = scan_value(&s, 0);

	if (r == 0 && s.at != s.end)
		r = scan_refuse(&s, "bytes trail behind it");
	*ret_why = s.why;
	return r;
}
