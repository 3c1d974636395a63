/* UTF-8: no halves of surrogates, no longer forms than needed, nothing above U+10FFFF. */
#ifndef GPUWM_PROTO_UTF8_H
#define GPUWM_PROTO_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at `text`, which ends with a zero; 0: no UTF-8. */
size_t utf8_character(const char *text);

bool utf8_valid(const char *text);

/* Makes one line of UTF-8 of it, for people to read: control characters and bytes that are no UTF-8 become '?'. */
void utf8_make_line(char *text);

/* Copies at most size - 1 bytes of a text of others, for people to read, as one line in which all is seen: control characters
 * and bytes that are no UTF-8 become '?'; a character that is invisible, or that changes the direction of its
 * neighbours, becomes its number, "\u{202E}". What does not fit is left out from the beginning of a character on.
 * Returns the length. The texts must not overlap. */
size_t utf8_show(const char *text, char *ret_text, size_t size);
/* Room for what becomes of so many bytes. */
#define UTF8_SHOWN_MAX(bytes) (4 * (bytes) + 1)

#endif
