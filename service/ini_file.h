/* Configuration files, by inih: what gpuwmd and a service's gpuwm-loader both read, under the same rules. */
#ifndef GPUWM_SERVICE_INI_FILE_H
#define GPUWM_SERVICE_INI_FILE_H

#include "../proto/errors.h"

struct ini_file {
	const char *path;
	const char *missing,
		*too_long; /* what to do about a file, or a line, that can't be read; may be NULL */
	/* One key; negative, with *error, ends the reading. */
	int (*take)(void *user, const char *section, const char *key, const char *value, struct error *error);
	void *user;
};

/* 0; -errno of opening it; what take said, with file and line; -EINVAL: a line that is neither a section
 * nor a key, too long for inih, or has a zero byte; -EIO. */
int ini_file_read(const struct ini_file *file, struct error *error);

#endif
