#include "json_reader.h"

#include "../../base/utf8.h"

#include <string.h>

/* A double holds less than 1.8 * 10^308. */
#define MAGNITUDE_MAX 308
/* A larger exponent counts as this one: no text has enough digits to make up for it. */
#define EXPONENT_MAX 1000000000000

void json_reader_open(const char *text, size_t bytes, char *texts, struct json_reader *ret)
{
	*ret = (struct json_reader){.text = text, .bytes = bytes, .room = texts};
}

static bool fails(struct json_reader *r, const char *fault)
{
	if (!r->fault)
		r->fault = fault;
	return false;
}

/* Returns the next byte without reading it, or -1 at the end or after a fault. */
static int json_look(const struct json_reader *r)
{
	return r->fault || r->at == r->bytes ? -1 : (unsigned char)r->text[r->at];
}

static int json_look_behind_space(struct json_reader *r)
{
	int c = json_look(r);

	while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
		r->at++;
		c = json_look(r);
	}
	return c;
}

static bool json_take(struct json_reader *r, char expected, const char *fault)
{
	if (json_look_behind_space(r) != expected)
		return fails(r, json_look(r) < 0 ? "it ends too early" : fault);
	r->at++;
	return true;
}

enum json_kind json_reader_peek(struct json_reader *r)
{
	int c = json_look_behind_space(r);

	switch (c) {
	case '{':
		return JSON_KIND_OBJECT;
	case '[':
		return JSON_KIND_ARRAY;
	case '"':
		return JSON_KIND_TEXT;
	case 't':
	case 'f':
	case 'n':
		return JSON_KIND_WORD;
	default:
		return c == '-' || (c >= '0' && c <= '9') ? JSON_KIND_NUMBER : JSON_KIND_NONE;
	}
}

/* ---- objects and arrays -------------------------------------------------- */

static bool json_enter(struct json_reader *r, char open, const char *fault)
{
	if (json_look_behind_space(r) == open && r->depth == JSON_DEPTH_MAX)
		return fails(r, "it is nested more than 127 deep");
	if (!json_take(r, open, fault))
		return false;
	r->depth++;
	r->first = true;
	return true;
}

/* Returns whether there is another value. If not, reads the end of the object or array. */
static bool json_next(struct json_reader *r, char close)
{
	bool first = r->first;

	r->first = false;
	if (json_look_behind_space(r) == close) {
		r->at++;
		r->depth--;
		return false;
	}
	return first ? !r->fault
		     : json_take(r, ',', close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
}

bool json_reader_object(struct json_reader *r)
{
	return json_enter(r, '{', "expected an object");
}

bool json_reader_key(struct json_reader *r, struct json_text *ret)
{
	return json_next(r, '}') && json_reader_text(r, ret) && json_take(r, ':', "expected ':'");
}

bool json_reader_array(struct json_reader *r)
{
	return json_enter(r, '[', "expected an array");
}

bool json_reader_item(struct json_reader *r)
{
	return json_next(r, ']');
}

/* ---- texts --------------------------------------------------------------- */

/* Reads four hexadecimal digits. */
static bool take_unit(struct json_reader *r, unsigned *ret)
{
	static const char digits[] = "0123456789abcdef";
	unsigned unit = 0;

	for (int i = 0; i < 4; i++) {
		int c = json_look(r);
		const char *digit = c > 0 ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;

		if (!digit)
			return fails(r, "expected four hexadecimal digits");
		unit = unit << 4 | (unsigned)(digit - digits);
		r->at++;
	}
	*ret = unit;
	return true;
}

static void json_put(struct json_reader *r, unsigned byte)
{
	*r->room++ = (char)byte;
}

static void json_put_character(struct json_reader *r, unsigned character)
{
	if (character < 0x80) {
		json_put(r, character);
		return;
	}
	if (character < 0x800) {
		json_put(r, 0xc0 | character >> 6);
	} else {
		if (character < 0x10000) {
			json_put(r, 0xe0 | character >> 12);
		} else {
			json_put(r, 0xf0 | character >> 18);
			json_put(r, 0x80 | (character >> 12 & 0x3f));
		}
		json_put(r, 0x80 | (character >> 6 & 0x3f));
	}
	json_put(r, 0x80 | (character & 0x3f));
}

/* Reads what follows \u. A character above U+FFFF comes as two halves. */
static bool take_escaped_unit(struct json_reader *r)
{
	static const char half[] = "half of a surrogate pair";
	unsigned unit, low;

	if (!take_unit(r, &unit))
		return false;
	if (unit >= 0xdc00 && unit < 0xe000)
		return fails(r, half);
	if (unit >= 0xd800 && unit < 0xdc00) {
		if (r->bytes - r->at < 2 || memcmp(r->text + r->at, "\\u", 2) != 0)
			return fails(r, half);
		r->at += 2;
		if (!take_unit(r, &low))
			return false;
		if (low < 0xdc00 || low >= 0xe000)
			return fails(r, half);
		unit = 0x10000 + ((unit - 0xd800) << 10 | (low - 0xdc00));
	}
	json_put_character(r, unit);
	return true;
}

static bool take_escape(struct json_reader *r)
{
	static const char names[] = "\"\\/bfnrtu", meant[] = "\"\\/\b\f\n\r\t";
	int c = json_look(r);
	const char *name = c > 0 ? strchr(names, c) : NULL;

	if (!name)
		return fails(r, "no such escape");
	r->at++;
	if (c == 'u')
		return take_escaped_unit(r);
	json_put(r, (unsigned char)meant[name - names]);
	return true;
}

static bool take_character(struct json_reader *r)
{
	const char *at = r->text + r->at;
	size_t bytes;

	if ((unsigned char)*at < 0x20)
		return fails(r, "a control character in a text");
	bytes = utf8_character(at, r->bytes - r->at);
	if (bytes == 0)
		return fails(r, "no UTF-8");
	memcpy(r->room, at, bytes);
	r->room += bytes;
	r->at += bytes;
	return true;
}

bool json_reader_text(struct json_reader *r, struct json_text *ret)
{
	char *text = r->room;
	int c;

	if (!json_take(r, '"', "expected a text"))
		return false;
	while ((c = json_look(r)) >= 0 && c != '"') {
		if (c == '\\') {
			r->at++;
			take_escape(r);
		} else {
			take_character(r);
		}
	}
	if (c < 0)
		return fails(r, "a text does not end");
	r->at++;
	*ret = (struct json_text){.bytes = text, .length = (size_t)(r->room - text)};
	json_put(r, 0);
	return true;
}

bool json_text_has_zero(struct json_text text)
{
	return strlen(text.bytes) != text.length;
}

void json_reader_forget(struct json_reader *r, struct json_text text)
{
	r->room = text.bytes;
}

/* ---- numbers and words --------------------------------------------------- */

static size_t skip_digits(struct json_reader *r)
{
	size_t from = r->at;

	while (json_look(r) >= '0' && json_look(r) <= '9')
		r->at++;
	return r->at - from;
}

static int64_t take_exponent(struct json_reader *r)
{
	int64_t exponent = 0;
	bool negative = json_look(r) == '-';

	if (negative || json_look(r) == '+')
		r->at++;
	for (size_t i = r->at, end = i + skip_digits(r); i < end; i++)
		if (exponent < EXPONENT_MAX)
			exponent = exponent * 10 + (r->text[i] - '0');
	return negative ? -exponent : exponent;
}

/* Reads digits, of which there must be at least one. */
static bool take_digits(struct json_reader *r, const char **ret_digits, size_t *ret_count)
{
	*ret_digits = r->text + r->at;
	*ret_count = skip_digits(r);
	return *ret_count > 0 || fails(r, "expected a digit");
}

/* Reads what follows the integer. The first digit that is not zero stands for 10^magnitude. */
static bool take_rest(struct json_reader *r, const char *digits, size_t count, struct json_number *ret)
{
	int64_t magnitude = (int64_t)count - 1;
	bool zero = *digits == '0';

	if (json_look(r) == '.') {
		const char *fraction;
		size_t length, zeros = 0;

		ret->is_integer = false;
		r->at++;
		if (!take_digits(r, &fraction, &length))
			return false;
		while (zeros < length && fraction[zeros] == '0')
			zeros++;
		if (zero) {
			magnitude = -1 - (int64_t)zeros;
			zero = zeros == length;
		}
	}
	if (json_look(r) == 'e' || json_look(r) == 'E') {
		ret->is_integer = false;
		r->at++;
		magnitude += take_exponent(r);
		if (r->text[r->at - 1] < '0' || r->text[r->at - 1] > '9')
			return fails(r, "expected a digit");
	}
	return zero || magnitude < MAGNITUDE_MAX || fails(r, "a number is out of range");
}

bool json_reader_number(struct json_reader *r, struct json_number *ret)
{
	struct json_number number = {.is_integer = true};
	const char *digits;
	size_t count;
	bool negative;

	if (json_reader_peek(r) != JSON_KIND_NUMBER)
		return fails(r, "expected a number");
	number.text = r->text + r->at;
	negative = json_look(r) == '-';
	if (negative)
		r->at++;
	if (!take_digits(r, &digits, &count))
		return false;
	if (*digits == '0' && count > 1)
		return fails(r, "a number begins with 0");
	number.is_count = true;
	for (size_t i = 0; i < count && number.is_count; i++)
		number.is_count =
			!__builtin_mul_overflow(number.count, 10, &number.count) &&
			!__builtin_add_overflow(number.count, (unsigned)(digits[i] - '0'), &number.count);
	if (!take_rest(r, digits, count, &number))
		return false;
	number.is_count = number.is_count && number.is_integer && !negative;
	number.length = (size_t)(r->text + r->at - number.text);
	*ret = number;
	return true;
}

static bool take_word(struct json_reader *r, const char *word)
{
	size_t length = strlen(word);

	if (r->bytes - r->at < length || memcmp(r->text + r->at, word, length) != 0)
		return false;
	r->at += length;
	return true;
}

bool json_reader_null(struct json_reader *r)
{
	return json_reader_peek(r) == JSON_KIND_WORD && take_word(r, "null");
}

/* ---- any value ----------------------------------------------------------- */

void json_reader_skip(struct json_reader *r)
{
	struct json_number number;
	struct json_text text;

	switch (json_reader_peek(r)) {
	case JSON_KIND_OBJECT:
		json_reader_object(r);
		while (json_reader_key(r, &text)) {
			json_reader_forget(r, text);
			json_reader_skip(r);
		}
		break;
	case JSON_KIND_ARRAY:
		json_reader_array(r);
		while (json_reader_item(r))
			json_reader_skip(r);
		break;
	case JSON_KIND_TEXT:
		if (json_reader_text(r, &text))
			json_reader_forget(r, text);
		break;
	case JSON_KIND_NUMBER:
		json_reader_number(r, &number);
		break;
	case JSON_KIND_WORD:
		if (!take_word(r, "null") && !take_word(r, "true") && !take_word(r, "false"))
			fails(r, "expected a value");
		break;
	case JSON_KIND_NONE:
		fails(r, json_look(r) < 0 ? "it ends too early" : "expected a value");
	}
}

void json_reader_end(struct json_reader *r)
{
	if (json_look_behind_space(r) >= 0)
		fails(r, "something follows the value");
}

const char *json_reader_fault(const struct json_reader *r)
{
	return r->fault;
}

size_t json_reader_line(const struct json_reader *r)
{
	size_t line = 1;

	for (size_t i = 0; i < r->at; i++)
		line += r->text[i] == '\n';
	return line;
}
