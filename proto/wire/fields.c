#include "message.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
