/* Reads JSON from memory value by value: no tree is built, so what a file says costs no memory but its decoded texts.
 *
 * The rules are those of the reference of safetensors (serde_json): UTF-8, no comments, nothing after the value, at most
 * JSON_DEPTH_MAX levels, no number of 10^308 or more. The same key twice is the caller's to refuse.
 *
 * Faults are sticky: after the first one all calls return false or NULL, and json_reader_fault tells it.
 */
#ifndef GPUWM_LOADER_JSON_READER_H
#define GPUWM_LOADER_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 127 /* objects and arrays in each other: the reference's own limit */

struct json_reader {
	const char *text;
	size_t bytes, at;
	char *room; /* where the next text is decoded to */
	unsigned depth;
	bool first; /* nothing of the innermost object or array was read yet */
	const char *fault; /* NULL: none */
};

enum json_kind {
	JSON_KIND_NONE, /* the end, a fault, or nothing that begins a value */
	JSON_KIND_OBJECT,
	JSON_KIND_ARRAY,
	JSON_KIND_TEXT,
	JSON_KIND_NUMBER,
	JSON_KIND_WORD, /* true, false, null */
};

struct json_text {
	char *bytes; /* with a zero byte behind them */
	size_t length;
};
/* A zero byte is in the text, so that its C string is another one. */
bool json_text_has_zero(struct json_text text);

struct json_number {
	bool is_integer; /* no fraction, no exponent */
	bool is_count; /* an integer from 0 to 2^64 - 1, without a sign */
	uint64_t count;
	const char *text; /* as the JSON has it; not zero-terminated */
	size_t length;
};

/* texts: room for `bytes` bytes, which the decoded texts point into. Both are the caller's and stay. */
void json_reader_open(const char *text, size_t bytes, char *texts, struct json_reader *ret);

/* What comes next. */
enum json_kind json_reader_peek(struct json_reader *r);

/* Steps into an object, then to each of its keys, behind which its value must be read or skipped. False: it has no more,
 * or a fault. */
bool json_reader_object(struct json_reader *r);
bool json_reader_key(struct json_reader *r, struct json_text *ret);
/* The same with an array and its values. */
bool json_reader_array(struct json_reader *r);
bool json_reader_item(struct json_reader *r);

bool json_reader_text(struct json_reader *r, struct json_text *ret);
bool json_reader_number(struct json_reader *r, struct json_number *ret);
/* True if `null` came next, and was read. */
bool json_reader_null(struct json_reader *r);
/* One value of any kind. Its texts take no room. */
void json_reader_skip(struct json_reader *r);
/* Forgets texts: they and all later ones are written over. */
void json_reader_forget(struct json_reader *r, struct json_text text);

/* Only whitespace may follow. */
void json_reader_end(struct json_reader *r);

/* NULL, or what is wrong at byte `at`. */
const char *json_reader_fault(const struct json_reader *r);
/* The line of byte `at`, from 1 on. */
size_t json_reader_line(const struct json_reader *r);

#endif
