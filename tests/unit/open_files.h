/* As many open files as gpuwm-keeper has. */
#ifndef GPUWM_TESTS_OPEN_FILES_H
#define GPUWM_TESTS_OPEN_FILES_H

#include <criterion/criterion.h>
#include <sys/resource.h>

/* Raises the soft limit of open files to the hard one, as gpuwm-keeper does at its start: the descriptors of a store have
 * numbers above its size, and the usual soft limit is 1,024. */
static inline void open_files_raise(void)
{
	struct rlimit files;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}

#endif
