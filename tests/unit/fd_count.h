/* How many descriptors this process has open: count before and after. */
#ifndef GPUWM_TESTS_FD_COUNT_H
#define GPUWM_TESTS_FD_COUNT_H

#include <dirent.h>

static inline int fd_count(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = -3; /* ".", "..", and the folder's own */

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

#endif
