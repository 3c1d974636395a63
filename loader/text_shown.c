#include "text_shown.h"

#include <string.h>

int text_shown(const char *text)
{
	size_t length = strnlen(text, TEXT_SHOWN_MAX + 1);

	if (length <= TEXT_SHOWN_MAX)
		return (int)length;
	length = TEXT_SHOWN_MAX;
	while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
		length--;
	return (int)length;
}
