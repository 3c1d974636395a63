#include "output.h"

#include "../../base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* ---- scalars --------------------------------------------------------------- */

/* Whether YAML 1.1 forbids the character, breaks lines at it, or takes it for a byte order mark. */
static bool must_be_escaped(uint32_t number)
{
	return number < 0x20 || (number >= 0x7f && number < 0xa0) || number == 0x2028 || number == 0x2029 ||
	       number == 0xfeff || number == 0xfffe || number == 0xffff;
}

/* Always in quotes: no reader takes a text for a number, a truth or a time. */
static void text_write(FILE *stream, const char *text, size_t length)
{
	fputc('"', stream);
	while (length > 0) {
		size_t bytes = utf8_character(text, length);
		uint32_t number = utf8_number(text, bytes);

		if (number == '"' || number == '\\')
			fprintf(stream, "\\%c", (char)number);
		else if (must_be_escaped(number))
			fprintf(stream, "\\u%04" PRIX32, number);
		else
			fwrite(text, 1, bytes, stream);
		text += bytes;
		length -= bytes;
	}
	fputc('"', stream);
}

/* Words that YAML 1.1 takes for a truth, or for nothing. */
static bool is_word_of_yaml(const char *text)
{
	static const char *const words[] = {"y", "yes", "n", "no", "true", "false", "on", "off", "null"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(text, words[i]) == 0)
			return true;
	return false;
}

/* YAML allows 1,024 characters before the colon on one line. An escaped character takes six. */
#define KEY_ON_LINE_MAX 128

static void key_write(FILE *stream, const char *key, int indent)
{
	const size_t length = strlen(key);
	bool plain = isalpha((unsigned char)key[0]) && !is_word_of_yaml(key);

	for (const char *at = key; *at; at++)
		plain = plain && (isalnum((unsigned char)*at) || *at == '_');
	fputs(length > KEY_ON_LINE_MAX ? "? " : "", stream);
	if (plain)
		fputs(key, stream);
	else
		text_write(stream, key, length);
	if (length > KEY_ON_LINE_MAX)
		fprintf(stream, "\n%*s", indent, "");
	fputc(':', stream);
}

/* ---- values ------------------------------------------------------------------ */

static void value_write(FILE *stream, const json_t *value, int indent);

static bool is_block(const json_t *value)
{
	return json_object_size(value) > 0 || json_array_size(value) > 0;
}

static void scalar_write(FILE *stream, const json_t *value)
{
	char text[40];
	size_t digits;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		fputs("{}", stream);
		break;
	case JSON_ARRAY:
		fputs("[]", stream);
		break;
	case JSON_STRING:
		text_write(stream, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		fprintf(stream, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		break;
	case JSON_REAL:
		/* YAML 1.1 takes a number for a real one only if it has a point. */
		snprintf(text, sizeof(text), "%.17g", json_real_value(value));
		digits = strcspn(text, "e");
		fprintf(stream, "%.*s%s%s", (int)digits, text, strchr(text, '.') ? "" : ".0", text + digits);
		break;
	default:
		fputs(json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null", stream);
	}
	fputc('\n', stream);
}

/* The first member stands where the stream is, the others are indented. */
static void object_write(FILE *stream, const json_t *object, int indent)
{
	json_t *value;
	const char *key, *begin = "";

	json_object_foreach((json_t *)object, key, value) {
		fprintf(stream, "%*s", *begin ? indent : 0, "");
		begin = " ";
		key_write(stream, key, indent);
		if (is_block(value))
			fprintf(stream, "\n%*s", indent + 2, "");
		else
			fputc(' ', stream);
		value_write(stream, value, indent + 2);
	}
}

static void value_write(FILE *stream, const json_t *value, int indent)
{
	const json_t *member;
	size_t i;

	if (!is_block(value)) {
		scalar_write(stream, value);
		return;
	}
	if (json_is_object(value)) {
		object_write(stream, value, indent);
		return;
	}
	json_array_foreach(value, i, member) {
		fprintf(stream, "%*s- ", i ? indent : 0, "");
		value_write(stream, member, indent + 2);
	}
}

void yaml_write(FILE *stream, const json_t *value)
{
	fputs("---\n", stream);
	value_write(stream, value, 0);
}
