#include "roots.h"

#include "../proto/limits.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct roots roots;
	FILE *file;
	int line;
	int code;
	struct error error;
};

/* inih splits what is longer than its buffer into two lines, so that is refused here. */
static char *read_line(char *text, int size, void *user)
{
	struct reading *reading = user;

	if (reading->code < 0 || !fgets(text, size, reading->file))
		return NULL;
	reading->line++;
	if (!strchr(text, '\n') && !feof(reading->file)) {
		reading->code = error_set(&reading->error, -EINVAL, "make the path shorter",
					  "the line has more than %d bytes, or a zero byte", size - 2);
		return NULL;
	}
	return text;
}

static int add(struct roots *roots, const char *path, struct error *error)
{
	if (path[0] != '/')
		return error_set(error, -EINVAL, NULL, "root = %.256s: is no absolute path", path);
	if (roots->count == ROOTS_MAX)
		return error_set(error, -EINVAL, NULL,
				 "root = %.256s: is one too many: at most %d roots are possible", path,
				 ROOTS_MAX);
	roots->paths[roots->count] = strdup(path);
	if (!roots->paths[roots->count])
		return error_set(error, -ENOMEM, NULL, "out of memory");
	roots->count++;
	return 0;
}

static int take_key(void *user, const char *section, const char *key, const char *value)
{
	struct reading *reading = user;

	if (strcmp(section, "loader") == 0 && strcmp(key, "root") == 0)
		reading->code = add(&reading->roots, value, &reading->error);
	return reading->code == 0;
}

static void parse(struct reading *reading)
{
	int wrong_line = ini_parse_stream(read_line, reading, take_key, reading);

	if (reading->code == 0 && ferror(reading->file))
		reading->code = error_set(&reading->error, -EIO, NULL, "it can't be read");
	/* A line that inih does not understand comes before the one that stopped it. */
	if (wrong_line > 0 && (reading->code == 0 || wrong_line < reading->line)) {
		reading->line = wrong_line;
		reading->code =
			error_set(&reading->error, -EINVAL, NULL, "this is neither [section] nor key = value");
	}
}

static int none(const char *file, struct error *error)
{
	if (!file)
		return error_set(error, -EACCES, "give gpuwm-loader --config FILE in its service",
				 "the loader's service names no configuration, so it has no roots");
	return error_set(error, -EACCES, "root in [loader] of that file adds one",
			 "%s names no roots, so nothing can be loaded", file);
}

int roots_read(const char *file, struct roots *ret, struct error *error)
{
	struct reading reading = {.file = file ? fopen(file, "re") : NULL};

	if (!file)
		return none(file, error);
	if (!reading.file)
		return error_set(error, -errno, "--config in the loader's service names it",
				 "configuration %s: %s", file, strerror(errno));
	reading.roots.paths = calloc(ROOTS_MAX, sizeof(*reading.roots.paths));
	if (reading.roots.paths)
		parse(&reading);
	else
		reading.code = error_set(&reading.error, -ENOMEM, NULL, "out of memory");
	fclose(reading.file);
	if (reading.code < 0)
		error_set(error, reading.code, reading.error.detail, "%s:%d: %s", file, reading.line,
			  reading.error.message);
	else if (reading.roots.count == 0)
		reading.code = none(file, error);
	if (reading.code < 0)
		roots_clear(&reading.roots);
	else
		*ret = reading.roots;
	return reading.code;
}

void roots_clear(struct roots *roots)
{
	for (size_t i = 0; i < roots->count; i++)
		free(roots->paths[i]);
	free(roots->paths);
	*roots = (struct roots){0};
}
