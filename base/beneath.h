/* Files below a folder into which others may write too. The folder itself may be reached through links; below it, no link is followed
 * where a program writes or removes: whoever may write there could make a link that leads to a file of somebody else. */
#ifndef GPUWM_BASE_BENEATH_H
#define GPUWM_BASE_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>

enum beneath_links {
	BENEATH_LINKS, /* are followed where they stay in the folder: for reading only */
	BENEATH_NO_LINKS, /* fail with -ELOOP or -ENOTDIR, wherever they lead */
};

/* Opens a name beneath an open folder. The name may have subfolders. flags: of open, without O_CREAT. Returns a descriptor or -errno:
 * -EXDEV if a link or ".." leads out of the folder.
 *
 * The kernel resolves the name (openat2). If it can't, or a sandbox does not let it, this function walks through the subfolders one by
 * one for BENEATH_NO_LINKS, and fails with -ENOSYS or -EPERM for BENEATH_LINKS. */
int beneath_open_in(int folder, const char *name, int flags, enum beneath_links links);

/* Opens the subfolder in which the last part of the name lies, following no links. Returns a descriptor of the caller's or -errno.
 * made: makes subfolders that are not there, and counts them; NULL: makes none. */
int beneath_open_parent(int folder, const char *name, unsigned *made);

/* Makes a new file, and opens it. name: of a file in the folder itself. flags: O_WRONLY or O_RDWR. It does not open what is there
 * already, and it does not wait for another process. Returns a descriptor or -errno, and sets *ret to what the file is.
 *
 * Fails with -EPERM if what it made is no regular file of this process's user with one name. Then the file stays, because it
 * may be somebody else's, and *ret says what it is. */
int beneath_make(int folder, const char *name, int flags, mode_t mode, struct stat *ret);

#endif
