#include "output.h"

#include "yaml.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {
	[OUTPUT_TABLE] = "table", [OUTPUT_WIDE] = "wide", [OUTPUT_JSON] = "json",
	[OUTPUT_YAML] = "yaml",   [OUTPUT_NAME] = "name",
};
const char output_forms[] = "table, wide, json, yaml or name";

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

/* The value of -o FORM, -oFORM, --output FORM or --output=FORM; NULL: argv[0] is no such option. */
static const char *form_text(char *const *argv)
{
	static const char longer[] = "--output=";

	if (strcmp(argv[0], "-o") == 0 || strcmp(argv[0], "--output") == 0)
		return argv[1];
	if (strncmp(argv[0], longer, strlen(longer)) == 0)
		return argv[0] + strlen(longer);
	return strncmp(argv[0], "-o", 2) == 0 ? argv[0] + 2 : NULL;
}

void output_choose_early(int argc, char *const *argv)
{
	enum output_form form;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *text = form_text(argv + i);

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
	return chosen == OUTPUT_JSON || chosen == OUTPUT_YAML;
}

int output_write(FILE *stream, const json_t *value)
{
	if (chosen == OUTPUT_YAML)
		yaml_write(stream, value);
	else if (json_dumpf(value, stream, JSON_COMPACT) == 0)
		fputc('\n', stream);
	return ferror(stream) ? -EIO : 0;
}
