#include "roots.h"

#include "../../base/limits.h"
#include "../../service/ini_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int roots_add(struct roots *roots, const char *path, struct error *error)
{
	if (path[0] != '/')
		return error_set(error, -EINVAL, NULL, "root = %.256s: is no absolute path", path);
	if (roots->count == ROOTS_MAX)
		return error_set(error, -EINVAL, NULL,
				 "root = %.256s: is one too many: at most %d roots are possible", path,
				 ROOTS_MAX);
	roots->paths[roots->count] = strdup(path);
	if (!roots->paths[roots->count])
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	roots->count++;
	return 0;
}

static int take_key(void *user, const char *section, const char *key, const char *value, struct error *error)
{
	return strcmp(section, "loader") == 0 && strcmp(key, "root") == 0 ? roots_add(user, value, error) : 0;
}

static int none(const char *file, struct error *error)
{
	if (!file)
		return error_set(error, -EACCES, "give gpuwm-loader --config FILE in its service",
				 "the loader's service names no configuration, so it has no roots");
	return error_set(error, -EACCES, "root in [loader] of that file adds one",
			 "%s names no roots, so nothing can be loaded", file);
}

int roots_read(const char *path, struct roots *ret, struct error *error)
{
	struct roots roots = {0};
	const struct ini_file file = {.path = path,
				      .missing = "--config in the loader's service names it",
				      .too_long = "make the path shorter",
				      .take = take_key,
				      .user = &roots};
	int r;

	if (!path)
		return none(path, error);
	roots.paths = calloc(ROOTS_MAX, sizeof(*roots.paths));
	if (!roots.paths)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	r = ini_file_read(&file, error);
	if (r == 0 && roots.count == 0)
		r = none(path, error);
	if (r < 0)
		roots_clear(&roots);
	else
		*ret = roots;
	return r;
}

void roots_clear(struct roots *roots)
{
	for (size_t i = 0; i < roots->count; i++)
		free(roots->paths[i]);
	free(roots->paths);
	*roots = (struct roots){0};
}
