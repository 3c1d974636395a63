/* Keys from the bytes that a terminal sends. */
#ifndef GPUWM_CTL_TOP_KEYS_H
#define GPUWM_CTL_TOP_KEYS_H

enum key {
	KEY_NONE = 0, /* the sequence goes on */
	KEY_ESCAPE = 27,
	KEY_BACKSPACE = 127,
	KEY_UP = 256, /* above all characters */
	KEY_DOWN,
	KEY_PAGE_UP,
	KEY_PAGE_DOWN,
	KEY_HOME,
	KEY_END,
	KEY_OTHER, /* a sequence that means nothing here */
};

struct keys {
	char sequence[8]; /* what came of a sequence, from its ESC on */
	unsigned length;
};

/* Takes a byte. Returns a character, one of the above, or KEY_NONE. */
int keys_take(struct keys *keys, int byte);
/* Whether a sequence has begun. If no byte follows soon, it was the key Escape alone: then call keys_end. */
int keys_open(const struct keys *keys);
int keys_end(struct keys *keys);

#endif
