#include "lease.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* linux/magic.h has not all of them. */
#define MAGIC_ZFS 0x2fc12fc1
#define MAGIC_BCACHEFS 0xca451a4e

/* File systems whose files only this kernel writes, and only through the file that the loader has open: another machine does not
 * ask this kernel, nor does a process that writes below an overlay. */
static bool writers_are_here(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC: /* ext2 and ext3 have the same */
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case SQUASHFS_MAGIC:
	case EROFS_SUPER_MAGIC_V1:
	case ISOFS_SUPER_MAGIC:
	case MAGIC_ZFS:
	case MAGIC_BCACHEFS:
		return true;
	default:
		return false;
	}
}

/* Who made such memory may write it, and never opened it: the kernel does not count that process as a writer. */
static bool is_memory(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

static bool is_sealed(int fd)
{
	const int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_WRITE && seals & F_SEAL_SHRINK;
}

int lease_take(int fd, const char *path, struct file_lease *ret, struct error *error)
{
	*ret = (struct file_lease){0};
	if (is_sealed(fd))
		return 0;
	/* The kernel sends a signal when it takes the lease back. SIGIO, the default, would end the process; SIGURG does nothing.
	 * lease_holds asks instead. */
	fcntl(fd, F_SETSIG, SIGURG);
	if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
		ret->held = true;
		if (is_memory(fd))
			ret->unseen = "they have no names: whoever made them may have them open";
		else if (!writers_are_here(fd))
			ret->unseen = "other machines, or processes beside this file system, may write them";
		return 0;
	}
	if (errno == EAGAIN)
		return error_set(error, -EBUSY,
				 "load it when nobody writes it; fuser -v FILE names the processes",
				 "%s is open for writing, or mapped for writing, in another process", path);
	ret->unseen = errno == EACCES ? "the loader does not own them, and has no CAP_LEASE"
				      : "their file system, or the kernel, grants no leases";
	return 0;
}

bool lease_holds(const struct file_lease *lease, int fd)
{
	return !lease->held || fcntl(fd, F_GETLEASE) == F_RDLCK;
}

void lease_give_back(struct file_lease *lease, int fd)
{
	if (lease->held)
		fcntl(fd, F_SETLEASE, F_UNLCK);
	lease->held = false;
}
