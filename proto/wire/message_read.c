#include "message.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- fields of a map ---- */

void fields_of(struct fields *f, const msgpack_object *map)
{
	f->map = map && map->type == MSGPACK_OBJECT_MAP ? map : NULL;
	f->error.code = 0;
	if (map && !f->map)
		error_set(&f->error, -EINVAL, NULL, "a map was expected");
}

const msgpack_object *fields_find(const struct fields *f, const char *key)
{
	size_t bytes = strlen(key);

	for (uint32_t i = 0; f->map && i < f->map->via.map.size; i++) {
		const msgpack_object_kv *kv = &f->map->via.map.ptr[i];

		if (kv->key.via.str.size == bytes && !memcmp(kv->key.via.str.ptr, key, bytes))
			return kv->val.type == MSGPACK_OBJECT_NIL ? NULL : &kv->val;
	}
	return NULL;
}

void fields_wrong(struct fields *f, const char *key, const char *what)
{
	if (!f->error.code)
		error_set(&f->error, -EINVAL, NULL, "\"%s\" %s", key, what);
}

static const msgpack_object *require(struct fields *f, const char *key)
{
	const msgpack_object *o = fields_find(f, key);

	if (!o)
		fields_wrong(f, key, "is missing");
	return o;
}

bool fields_have(const struct fields *f, const char *key)
{
	return fields_find(f, key);
}

static uint64_t as_u64(struct fields *f, const char *key, const msgpack_object *o)
{
	if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		return o->via.u64;
	fields_wrong(f, key, "is no unsigned integer");
	return 0;
}

uint64_t fields_u64(struct fields *f, const char *key)
{
	const msgpack_object *o = require(f, key);

	return o ? as_u64(f, key, o) : 0;
}

uint64_t fields_u64_or(struct fields *f, const char *key, uint64_t otherwise)
{
	const msgpack_object *o = fields_find(f, key);

	return o ? as_u64(f, key, o) : otherwise;
}

int64_t fields_i64_or(struct fields *f, const char *key, int64_t otherwise)
{
	const msgpack_object *o = fields_find(f, key);

	if (!o)
		return otherwise;
	if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		return o->via.i64;
	if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= INT64_MAX)
		return (int64_t)o->via.u64;
	fields_wrong(f, key, "is no integer of 64 bits");
	return 0;
}

bool fields_bool_or(struct fields *f, const char *key, bool otherwise)
{
	const msgpack_object *o = fields_find(f, key);

	if (!o)
		return otherwise;
	if (o->type != MSGPACK_OBJECT_BOOLEAN)
		fields_wrong(f, key, "is neither true nor false");
	return o->type == MSGPACK_OBJECT_BOOLEAN && o->via.boolean;
}

bool fields_is_text(struct fields *f, const msgpack_object *element, const char *key, uint64_t limit)
{
	if (element->type != MSGPACK_OBJECT_STR) {
		fields_wrong(f, key, "is no text");
	} else if (element->via.str.size > limit) {
		if (!f->error.code)
			error_set(&f->error, -EINVAL, NULL, "\"%s\" has %u bytes, the limit is %llu", key,
				  element->via.str.size, (unsigned long long)limit);
	} else if (memchr(element->via.str.ptr, 0, element->via.str.size)) {
		fields_wrong(f, key, "has a zero byte in it");
	} else {
		return true;
	}
	return false;
}

void fields_copy_text(struct fields *f, const msgpack_object *element, const char *key, char *buf)
{
	memcpy(buf, element->via.str.ptr, element->via.str.size);
	buf[element->via.str.size] = 0;
	if (!utf8_valid(buf)) {
		fields_wrong(f, key, "is no UTF-8");
		buf[0] = 0;
	}
}

void fields_text_at(struct fields *f, const msgpack_object *element, const char *key, char *buf, size_t size)
{
	buf[0] = 0;
	if (fields_is_text(f, element, key, size - 1))
		fields_copy_text(f, element, key, buf);
}

void fields_text(struct fields *f, const char *key, char *buf, size_t size)
{
	const msgpack_object *o = require(f, key);

	buf[0] = 0;
	if (o)
		fields_text_at(f, o, key, buf, size);
}

void fields_text_or(struct fields *f, const char *key, char *buf, size_t size, const char *otherwise)
{
	const msgpack_object *o = fields_find(f, key);

	if (o)
		fields_text_at(f, o, key, buf, size);
	else
		snprintf(buf, size, "%s", otherwise);
}

void fields_hex128(struct fields *f, const char *key, uint8_t ret_bytes[16])
{
	char text[VERSION_ID_TEXT];

	memset(ret_bytes, 0, 16);
	fields_text(f, key, text, sizeof text);
	if (!f->error.code && hex128_parse(text, ret_bytes) < 0)
		fields_wrong(f, key, "is not 32 lower-case hexadecimal digits");
}

const msgpack_object *fields_array(struct fields *f, const char *key, uint32_t *ret_count)
{
	const msgpack_object *o = require(f, key);

	*ret_count = 0;
	if (!o)
		return NULL;
	if (o->type != MSGPACK_OBJECT_ARRAY) {
		fields_wrong(f, key, "is no array");
		return NULL;
	}
	*ret_count = o->via.array.size;
	return o->via.array.ptr;
}

const msgpack_object *fields_map(struct fields *f, const char *key)
{
	const msgpack_object *o = require(f, key);

	if (o && o->type != MSGPACK_OBJECT_MAP)
		fields_wrong(f, key, "is no map");
	return o && o->type == MSGPACK_OBJECT_MAP ? o : NULL;
}

bool fields_error(struct fields *f, const char *key, struct error *ret)
{
	struct fields inner;
	char code[32];

	if (!fields_find(f, key))
		return false;
	fields_of(&inner, fields_map(f, key));
	fields_text(&inner, "code", code, sizeof code);
	fields_text_or(&inner, "message", ret->message, sizeof ret->message, "");
	fields_text_or(&inner, "detail", ret->detail, sizeof ret->detail, "");
	ret->code = error_code(code);
	if (inner.error.code)
		fields_wrong(f, key, "is no error");
	return true;
}

/* ---- messages ---- */

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

/* All objects lie in the message's zone, the outermost too. */
static int read_any(const void *data, size_t bytes, uint64_t elements_max, struct message *ret,
		    bool (*take)(struct message *, const msgpack_object *), const char **ret_why)
{
	msgpack_object *object;
	size_t offset = 0;
	int r = message_scan(data, bytes, elements_max, ret_why);

	message_init(ret);
	if (r < 0)
		return r;
	ret->zone = msgpack_zone_new(ZONE_BYTES);
	object = ret->zone ? msgpack_zone_malloc(ret->zone, sizeof *object) : NULL;
	/* The scan has accepted the bytes, so unpacking fails only for want of memory. */
	if (!object || msgpack_unpack(data, bytes, &offset, ret->zone, object) != MSGPACK_UNPACK_SUCCESS) {
		*ret_why = "out of memory";
		r = -ENOMEM;
	} else if (!take(ret, object)) {
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
