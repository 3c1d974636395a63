/* UTF-8 without surrogates, without forms longer than needed, and without numbers above
 * U+10FFFF. */
#ifndef GPUWM_PROTO_UTF8_H
#define GPUWM_PROTO_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the number of bytes of the character at `text`, or 0 if the bytes are not UTF-8. It reads
 * `left` bytes at most, 1 or more; of a text with a terminating zero it reads nothing behind that. */
size_t utf8_character(const char *text, size_t left);

/* Returns the number of the character that these bytes are, as many as utf8_character returned. */
uint32_t utf8_number(const char *text, size_t bytes);

/* Returns how many bytes of the text, `most` or fewer, can be shown without cutting a character. */
size_t utf8_cut(const char *text, size_t most);

bool utf8_valid(const char *text);

/* Makes the text one line of UTF-8, for people to read: control characters, and bytes that are not
 * UTF-8, become '?'. */
void utf8_make_line(char *text);

/* Copies at most size - 1 bytes of somebody else's text, for people to read, as one line that hides
 * nothing. Control characters, and bytes that are not UTF-8, become '?'. A character that is
 * invisible, or that changes the direction of its neighbours, becomes its number, "\u{202E}". A
 * character that does not fit is left out, and so is all that follows it. Returns the length. The
 * texts must not overlap. */
size_t utf8_show(const char *text, char *ret_text, size_t size);
/* The size of the buffer that is enough for the result from this many bytes. */
#define UTF8_SHOWN_MAX(bytes) (4 * (bytes) + 1)

/* ---- texts in messages ---- */

#define TEXT_SHOWN_MAX 200

/* Returns how many bytes of a text from a file a message shows. */
static inline int text_shown(const char *text)
{
	return (int)utf8_cut(text, TEXT_SHOWN_MAX);
}

#endif
