#include "terminal.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* More than any terminal has. A larger number is taken for a mistake. */
#define SIZE_MOST 100000

bool terminal_is(int fd)
{
	return isatty(fd);
}

/* The variable's number; 0: it has none. */
static unsigned variable_number(const char *name)
{
	const char *text = getenv(name);
	unsigned long number;
	char *end;

	if (!text || !isdigit((unsigned char)text[0]))
		return 0;
	number = strtoul(text, &end, 10);
	return *end == '\0' && number <= SIZE_MOST ? (unsigned)number : 0;
}

static struct winsize terminal_size(int fd)
{
	struct winsize size;

	return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size : (struct winsize){0};
}

/* The first of them that is not 0. */
static unsigned first_known(unsigned wish, unsigned told, unsigned otherwise)
{
	return wish ? wish : told ? told : otherwise;
}

unsigned terminal_columns(int fd)
{
	if (!terminal_is(fd))
		return 0;
	return first_known(variable_number("COLUMNS"), terminal_size(fd).ws_col, TERMINAL_COLUMNS_DEFAULT);
}

unsigned terminal_rows(int fd)
{
	if (!terminal_is(fd))
		return 0;
	return first_known(variable_number("LINES"), terminal_size(fd).ws_row, TERMINAL_ROWS_DEFAULT);
}

static bool is_set(const char *name)
{
	const char *text = getenv(name);

	return text && *text;
}

bool terminal_coloured(int fd)
{
	return terminal_is(fd) && !is_set("NO_COLOR") && is_set("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
}

const char *terminal_style(int fd, enum style style)
{
	static const char *const sequences[] = {
		[STYLE_PLAIN] = "\033[0m", [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
		[STYLE_GOOD] = "\033[32m", [STYLE_BUSY] = "\033[33m", [STYLE_BAD] = "\033[31m",
	};

	return terminal_coloured(fd) ? sequences[style] : "";
}

/* ---- states -------------------------------------------------------------- */

static const struct {
	const char *word;
	enum style style;
} states[] = {
	{"ready", STYLE_GOOD},   {"done", STYLE_GOOD},       {"intact", STYLE_GOOD},   {"ok", STYLE_GOOD},
	{"yes", STYLE_GOOD},     {"building", STYLE_BUSY},   {"checking", STYLE_BUSY}, {"queued", STYLE_BUSY},
	{"running", STYLE_BUSY}, {"cancelling", STYLE_BUSY}, {"retiring", STYLE_BUSY}, {"revoked", STYLE_BUSY},
	{"ended", STYLE_BUSY},   {"short", STYLE_BUSY},      {"failed", STYLE_BAD},    {"LOST", STYLE_BAD},
	{"tainted", STYLE_BAD},  {"no", STYLE_BAD},
};

enum style state_style(const char *text)
{
	const size_t length = strcspn(text, ", ");

	if (strstr(text, "tainted"))
		return STYLE_BAD;
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (strlen(states[i].word) == length && strncmp(states[i].word, text, length) == 0)
			return states[i].style;
	return STYLE_PLAIN;
}

/* ---- questions ----------------------------------------------------------- */

#define ANSWER_TEXT 16

bool ask_can(void)
{
	return terminal_is(STDIN_FILENO) && terminal_is(STDERR_FILENO);
}

bool ask(const char *question)
{
	char answer[ANSWER_TEXT];

	fflush(stdout);
	fprintf(stderr, "%s [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

/* ---- keys ---- */

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
