#include "json.h"

#include "../../base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static void json_put_character(FILE *out, const unsigned char *s, size_t length)
{
	if (length == 0)
		fputs("\\ufffd", out);
	else if (*s == '"' || *s == '\\')
		fprintf(out, "\\%c", *s);
	else if (*s == '\n')
		fputs("\\n", out);
	else if (*s == '\t')
		fputs("\\t", out);
	else if (*s < 0x20 || *s == 0x7f)
		fprintf(out, "\\u%04x", *s);
	else
		fwrite(s, 1, length, out);
}

void json_put_text(FILE *out, const char *text, size_t bytes)
{
	fputc('"', out);
	for (size_t i = 0, length; i < bytes; i += length ? length : 1) {
		length = utf8_character(text + i, bytes - i);
		json_put_character(out, (const unsigned char *)text + i, length);
	}
	fputc('"', out);
}

/* Depth is bounded by message_read. */
static void json_put(FILE *out, const msgpack_object *object)
{
	switch (object->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		fputs(object->via.boolean ? "true" : "false", out);
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		fprintf(out, "%" PRIu64, object->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		fprintf(out, "%" PRId64, object->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		fprintf(out, isfinite(object->via.f64) ? "%.17g" : "null", object->via.f64);
		break;
	case MSGPACK_OBJECT_STR:
		json_put_text(out, object->via.str.ptr, object->via.str.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		fputc('[', out);
		for (uint32_t i = 0; i < object->via.array.size; i++) {
			if (i > 0)
				fputc(',', out);
			json_put(out, &object->via.array.ptr[i]);
		}
		fputc(']', out);
		break;
	case MSGPACK_OBJECT_MAP:
		fputc('{', out);
		for (uint32_t i = 0; i < object->via.map.size; i++) {
			if (i > 0)
				fputc(',', out);
			json_put(out, &object->via.map.ptr[i].key);
			fputc(':', out);
			json_put(out, &object->via.map.ptr[i].val);
		}
		fputc('}', out);
		break;
	default:
		fputs("null", out);
	}
}

char *json_text(const msgpack_object *object)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	bool failed;

	if (!out)
		return NULL;
	if (object)
		json_put(out, object);
	else
		fputs("{}", out);
	failed = ferror(out) != 0;
	if (fclose(out) != 0 || failed) {
		free(text);
		return NULL;
	}
	return text;
}
