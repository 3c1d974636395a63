#include "state.h"

#include <stddef.h>
#include <string.h>

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
