/* Reads JSON from memory value by value. It builds no tree, so a file costs no memory but that of
 * its decoded texts.
 *
 * The rules are those of the safetensors reference (serde_json): UTF-8, no comments, nothing after
 * the value, at most JSON_DEPTH_MAX levels, no number of 10^308 or more. The reader accepts a key
 * twice; the caller refuses it.
 *
 * Faults are sticky: after the first one all calls return false or NULL, and json_reader_fault
 * returns it. */
#ifndef GPUWM_LOADER_JSON_READER_H
#define GPUWM_LOADER_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 127 /* how deep objects and arrays may nest: the limit of the reference */

struct json_reader {
	const char *text;
	size_t bytes, at;
	char *room; /* where the reader decodes the next text to */
	unsigned depth;
	bool first; /* the reader has read nothing of the innermost object or array yet */
	const char *fault; /* what is wrong; NULL: nothing */
};

enum json_kind {
	JSON_KIND_NONE, /* the end, a fault, or a byte with which no value begins */
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
/* Whether the text contains a zero byte, so that it is longer than its C string. */
bool json_text_has_zero(struct json_text text);

struct json_number {
	bool is_integer; /* it has no fraction and no exponent */
	bool is_count; /* an integer from 0 to 2^64 - 1, without a sign */
	uint64_t count;
	const char *text; /* as the JSON has it, without a terminating zero */
	size_t length;
};

/* Begins to read `bytes` bytes of JSON. texts has room for as many bytes; the decoded texts point
 * into it. The caller owns both, and keeps them while it uses the reader or its texts. */
void json_reader_open(const char *text, size_t bytes, char *texts, struct json_reader *ret);

/* Returns the kind of the next value, and reads nothing. */
enum json_kind json_reader_peek(struct json_reader *r);

/* json_reader_object steps into an object. json_reader_key then reads a key; the caller reads or
 * skips the value before it calls json_reader_key again. Both return false at a fault,
 * json_reader_key also at the object's end. */
bool json_reader_object(struct json_reader *r);
bool json_reader_key(struct json_reader *r, struct json_text *ret);
/* Does the same with an array and its values. */
bool json_reader_array(struct json_reader *r);
bool json_reader_item(struct json_reader *r);

bool json_reader_text(struct json_reader *r, struct json_text *ret);
bool json_reader_number(struct json_reader *r, struct json_number *ret);
/* If the next value is `null`, reads it and returns true. */
bool json_reader_null(struct json_reader *r);
/* Skips one value of any kind. Its texts take no room. */
void json_reader_skip(struct json_reader *r);
/* Gives back the room of this text and of all later ones. */
void json_reader_forget(struct json_reader *r, struct json_text text);

/* Checks that only whitespace follows. */
void json_reader_end(struct json_reader *r);

/* Returns what is wrong at byte `at`, or NULL if nothing is. */
const char *json_reader_fault(const struct json_reader *r);
/* Returns the line of byte `at`, counted from 1. */
size_t json_reader_line(const struct json_reader *r);

#endif
