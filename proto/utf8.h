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

#endif
