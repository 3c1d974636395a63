#include "keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct {
	const char *sequence; /* behind ESC */
	int key;
} sequences[] = {
	{"[A", KEY_UP},         {"OA", KEY_UP},   {"[B", KEY_DOWN}, {"OB", KEY_DOWN},  {"[5~", KEY_PAGE_UP},
	{"[6~", KEY_PAGE_DOWN}, {"[H", KEY_HOME}, {"OH", KEY_HOME}, {"[1~", KEY_HOME}, {"[7~", KEY_HOME},
	{"[F", KEY_END},        {"OF", KEY_END},  {"[4~", KEY_END}, {"[8~", KEY_END},
};

int keys_take(struct keys *keys, int byte)
{
	int key = KEY_OTHER;
	bool last;

	if (keys->length == 0 && byte != KEY_ESCAPE)
		return byte == '\b' ? KEY_BACKSPACE : byte;
	if (keys->length == 1 && byte != '[' && byte != 'O') {
		keys->length = 0;
		return KEY_OTHER; /* a key with Alt */
	}
	keys->sequence[keys->length++] = (char)byte;
	keys->sequence[keys->length] = '\0';
	/* A sequence ends with a letter or "~"; "[" and "O" begin one. */
	last = keys->length > 2 && (byte == '~' || (byte | 0x20) >= 'a') && (byte | 0x20) != '{';
	if (!last && keys->length < sizeof(keys->sequence) - 1)
		return KEY_NONE;
	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
		if (strcmp(sequences[i].sequence, keys->sequence + 1) == 0)
			key = sequences[i].key;
	keys->length = 0;
	return key;
}

int keys_open(const struct keys *keys)
{
	return keys->length > 0;
}

int keys_end(struct keys *keys)
{
	int key = keys->length == 1 ? KEY_ESCAPE : KEY_OTHER;

	keys->length = 0;
	return key;
}
