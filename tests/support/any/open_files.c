#include "open_files.h"

#include <criterion/criterion.h>
#include <sys/resource.h>

void open_files_raise(void)
{
	struct rlimit files;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}
