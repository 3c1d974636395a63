#ifndef GPUWM_LOADER_TEXT_SHOWN_H
#define GPUWM_LOADER_TEXT_SHOWN_H

#include "../../base/utf8.h"

#define TEXT_SHOWN_MAX 200

/* Returns how many bytes of a text from a file a message shows. */
static inline int text_shown(const char *text)
{
	return (int)utf8_cut(text, TEXT_SHOWN_MAX);
}

#endif
