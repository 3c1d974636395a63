#include "own_folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuwm-own-XXXXXX";
static pid_t owner; /* 0: there is no folder yet */

static int entry_remove(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
	(void)stat, (void)type, (void)walk;
	return remove(path);
}

/* A child process that exits leaves the folder to its parent. */
static void own_folder_remove(void)
{
	if (getpid() == owner)
		nftw(folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

const char *own_folder(void)
{
	if (owner)
		return folder;
	cr_assert(mkdtemp(folder), "%s: %s", folder, strerror(errno));
	cr_assert_eq(chmod(folder, 0755), 0);
	owner = getpid();
	atexit(own_folder_remove);
	return folder;
}
