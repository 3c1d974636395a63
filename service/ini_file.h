/* Configuration files, read by inih: the same rules for gpuwmd and for a gpuwm-loader that runs as
 * a service. */
#ifndef GPUWM_SERVICE_INI_FILE_H
#define GPUWM_SERVICE_INI_FILE_H

#include "../base/errors.h"

struct ini_file {
	const char *path;
	const char *missing,
		*too_long; /* what to do about a file, or a line, that can't be read; may be NULL */
	/* Takes one key. If it returns a negative code and sets *error, the reading ends. */
	int (*take)(void *user, const char *section, const char *key, const char *value, struct error *error);
	void *user;
};

/* Reads the file. Returns 0. Fails with the errno of opening it, with the code of `take` (the
 * message then names the file and the line), with -EINVAL if a line is neither a section nor a key,
 * is too long for inih or has a zero byte, and with -EIO. */
int ini_file_read(const struct ini_file *file, struct error *error);

#endif
