/* How many columns of a terminal a text takes. The texts are UTF-8, as utf8_show makes them. */
#ifndef GPUWM_CTL_WIDTH_H
#define GPUWM_CTL_WIDTH_H

#include <stddef.h>

/* Chinese, Japanese and Korean characters and most emoji take two columns, combining ones none. */
size_t text_width(const char *text);
/* The same for the first `length` bytes of it, which cut no character. */
size_t text_width_of(const char *text, size_t length);
/* Returns how many bytes of the text take at most `columns`. A character is not cut. */
size_t text_fit(const char *text, size_t columns);
/* Copies the text so that it takes at most `columns`, 1 or more. A text that is too long loses its middle, where "…"
 * stands: of MODEL@TAG, both ends tell versions apart. size: more than the text's bytes and those of "…". */
void text_cut(const char *text, size_t columns, char *ret_text, size_t size);
/* Bytes of the buffer for text_cut of a text with that many. */
#define TEXT_CUT_MAX(bytes) ((bytes) + sizeof("…"))

#endif
