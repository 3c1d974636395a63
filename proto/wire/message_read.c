#include "message.h"

#include "message_scan.h"

#include <errno.h>
#include <string.h>

/* The size of the objects of a usual request. Larger messages get more chunks. glibc keeps blocks
 * of up to 1,032 bytes at hand for each thread. */
#define ZONE_BYTES 960

/* Tries to read the id of a message that is refused, which begins with [type, id, …. */
static void salvage_id(const uint8_t *data, size_t bytes, struct message *m)
{
	size_t width = 0;

	if (bytes < 3 || data[0] != 0x94 || data[1] > 1)
		return;
	if (data[2] >= 0xcc && data[2] <= 0xcf)
		width = (size_t)1 << (data[2] - 0xcc);
	else if (data[2] > 0x7f)
		return;
	if (bytes < 3 + width)
		return;
	m->id = width ? 0 : data[2];
	for (size_t i = 0; i < width; i++)
		m->id = m->id << 8 | data[3 + i];
	m->has_id = true;
}

/* All objects lie in the zone, the outermost too. */
static int unpack(const void *data, size_t bytes, uint64_t elements_max, struct message *m,
		  msgpack_object **ret_object, const char **ret_why)
{
	size_t offset = 0;
	msgpack_object *object;
	int r = message_scan(data, bytes, elements_max, ret_why);

	if (r < 0)
		return r;
	m->zone = msgpack_zone_new(ZONE_BYTES);
	object = m->zone ? msgpack_zone_malloc(m->zone, sizeof *object) : NULL;
	/* The scan has accepted the bytes, so this fails only for want of memory. */
	if (!object || msgpack_unpack(data, bytes, &offset, m->zone, object) != MSGPACK_UNPACK_SUCCESS) {
		*ret_why = "out of memory";
		return -ENOMEM;
	}
	*ret_object = object;
	return 0;
}

static bool is_map_or_nil(const msgpack_object *o)
{
	return o->type == MSGPACK_OBJECT_MAP || o->type == MSGPACK_OBJECT_NIL;
}

static const msgpack_object *map_of(const msgpack_object *o)
{
	return o->type == MSGPACK_OBJECT_MAP ? o : NULL;
}

/* Reads the method and the [params] of a request or notification. */
static bool read_call(struct message *m, const msgpack_object *method, const msgpack_object *params)
{
	size_t bytes;

	if (method->type != MSGPACK_OBJECT_STR || params->type != MSGPACK_OBJECT_ARRAY ||
	    params->via.array.size != 1 || params->via.array.ptr[0].type != MSGPACK_OBJECT_MAP)
		return false;
	if (memchr(method->via.str.ptr, 0, method->via.str.size))
		return false; /* cutting it could make another method's name */
	bytes = method->via.str.size < sizeof m->method ? method->via.str.size : sizeof m->method - 1;
	memcpy(m->method, method->via.str.ptr, bytes);
	m->method[bytes] = 0;
	m->body = &params->via.array.ptr[0];
	return true;
}

static bool read_response(struct message *m, const msgpack_object *error, const msgpack_object *result)
{
	struct fields f;
	char code[32];

	if (!is_map_or_nil(error) || !is_map_or_nil(result) || error->type == result->type)
		return false;
	m->body = map_of(result);
	if (error->type == MSGPACK_OBJECT_NIL)
		return true;
	fields_of(&f, error);
	fields_text(&f, "code", code, sizeof code);
	fields_text(&f, "message", m->error.message, sizeof m->error.message);
	fields_text_or(&f, "detail", m->error.detail, sizeof m->error.detail, "");
	m->error.code = error_code(code);
	return f.error.code == 0;
}

static bool read_envelope(struct message *m, const msgpack_object *o)
{
	const msgpack_object *part = o->via.array.ptr;
	uint32_t count = o->type == MSGPACK_OBJECT_ARRAY ? o->via.array.size : 0;
	uint64_t type = count && part[0].type == MSGPACK_OBJECT_POSITIVE_INTEGER ? part[0].via.u64 : UINT64_MAX;

	if (count == 3 && type == 2) {
		m->type = MESSAGE_NOTIFICATION;
		return read_call(m, &part[1], &part[2]);
	}
	if (count != 4 || type > 1)
		return false;
	m->type = type == 0 ? MESSAGE_REQUEST : MESSAGE_RESPONSE;
	if (part[1].type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
		m->id = part[1].via.u64;
		m->has_id = true;
	} else if (type == 0 || part[1].type != MSGPACK_OBJECT_NIL) {
		return false;
	}
	return type == 0 ? read_call(m, &part[2], &part[3]) : read_response(m, &part[2], &part[3]);
}

/* Sets the fields without zeroing the 2 KiB of an error's texts. */
static void message_init(struct message *m)
{
	m->type = MESSAGE_REQUEST;
	m->id = 0;
	m->has_id = false;
	m->method[0] = 0;
	m->error.code = 0;
	m->error.message[0] = m->error.detail[0] = 0;
	m->body = NULL;
	m->zone = NULL;
}

static int read_any(const void *data, size_t bytes, uint64_t elements_max, struct message *ret,
		    bool (*take)(struct message *, const msgpack_object *), const char **ret_why)
{
	msgpack_object *object;
	int r;

	message_init(ret);
	r = unpack(data, bytes, elements_max, ret, &object, ret_why);
	if (r == 0 && !take(ret, object)) {
		*ret_why = "it is no request, response or notification of MessagePack-RPC with a map";
		r = -EPROTO;
	}
	if (r < 0) {
		message_clear(ret);
		message_init(ret);
	}
	return r;
}

static int read_packet(const void *data, size_t bytes, uint64_t elements_max, struct message *ret,
		       const char **ret_why)
{
	int r = read_any(data, bytes, elements_max, ret, read_envelope, ret_why);

	if (r < 0)
		salvage_id(data, bytes, ret);
	return r;
}

int message_read(const void *data, size_t bytes, struct message *ret, const char **ret_why)
{
	return read_packet(data, bytes, MESSAGE_ELEMENTS_ANY, ret, ret_why);
}

int message_read_bounded(const void *data, size_t bytes, struct message *ret, const char **ret_why)
{
	return read_packet(data, bytes, MESSAGE_ELEMENTS_MAX, ret, ret_why);
}

static bool read_bare_map(struct message *m, const msgpack_object *o)
{
	m->type = MESSAGE_RESPONSE;
	m->body = map_of(o);
	return m->body;
}

int message_read_body(const void *data, size_t bytes, struct message *ret, const char **ret_why)
{
	if (bytes > MESSAGE_BODY_MAX) {
		*ret = (struct message){0};
		*ret_why = "it is larger than 64 MiB";
		return -EPROTO;
	}
	return read_any(data, bytes, MESSAGE_ELEMENTS_ANY, ret, read_bare_map, ret_why);
}

void message_clear(struct message *m)
{
	if (m->zone)
		msgpack_zone_free(m->zone);
	m->zone = NULL;
	m->body = NULL;
}
