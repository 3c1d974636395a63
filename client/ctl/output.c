#include "output.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {
	[OUTPUT_TABLE] = "table",
	[OUTPUT_WIDE] = "wide",
	[OUTPUT_JSON] = "json",
	[OUTPUT_NAME] = "name",
};
const char output_forms[] = "table, wide, json or name";

static enum output_form chosen;

int output_form_parse(const char *text, enum output_form *ret_form)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret_form = (enum output_form)i;
			return 0;
		}
	}
	return -EINVAL;
}

void output_choose(enum output_form form)
{
	chosen = form;
}

void output_choose_early(int argc, char *const *argv)
{
	static const char longer[] = "--output=";
	enum output_form form;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *text = NULL;

		if (strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0)
			text = argv[i + 1];
		else if (strncmp(argv[i], longer, strlen(longer)) == 0)
			text = argv[i] + strlen(longer);
		else if (strncmp(argv[i], "-o", 2) == 0)
			text = argv[i] + 2;
		if (text && output_form_parse(text, &form) == 0) {
			output_choose(form);
			return;
		}
	}
}

enum output_form output_form(void)
{
	return chosen;
}

bool output_is_data(void)
{
	return chosen == OUTPUT_JSON;
}

int output_write(FILE *stream, const json_t *value)
{
	/* It allocates, and may have written a part when that fails. */
	if (json_dumpf(value, stream, JSON_COMPACT) == 0)
		fputc('\n', stream);
	else if (!ferror(stream))
		return -ENOMEM;
	return ferror(stream) ? -EIO : 0;
}
