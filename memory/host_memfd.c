#include "memory_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The seals come first: they tell a memfd from everything else, and asking for
 * them returns even on a descriptor from a dead FUSE server, where fstat hangs. */
int host_memfd_check(int fd, uint64_t bytes, const struct host_seals *wanted, struct error *error)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 && errno != EINVAL && errno != EBADF)
		return error_set(error, -errno, NULL, "asking for the seals of a descriptor failed: %s",
				 strerror(errno));
	if (seals < 0)
		return error_set(error, -EBADMSG, "memory of \"host\" is a memfd with MFD_ALLOW_SEALING",
				 "the descriptor is not a memfd");
	if ((seals & wanted->seals) != wanted->seals)
		return error_set(error, -EBADMSG, wanted->remedy, "the memfd lacks seals: %s", wanted->without);
	if (fstat(fd, &st) < 0)
		return error_set(error, -errno, NULL, "the memfd could not be looked at: %s", strerror(errno));
	if ((uint64_t)st.st_size != bytes)
		return error_set(error, -EBADMSG, NULL,
				 "the memfd holds %llu bytes, not the %llu that were said",
				 (unsigned long long)st.st_size, (unsigned long long)bytes);
	return 0;
}

/* ---- those that stay writable: of regions -------------------------------- */

/* With them nobody's mapping loses its pages. */
#define SEALS_SIZE (F_SEAL_GROW | F_SEAL_SHRINK)

int host_share(const struct memory_device *device, struct memory_segment *segment, struct error *error)
{
	(void)device;
	if (fcntl(segment->fd, F_ADD_SEALS, SEALS_SIZE) < 0)
		return error_set(error, -errno, NULL, "sealing the size of a memfd of %llu bytes failed: %s",
				 (unsigned long long)segment->bytes, strerror(errno));
	/* A memfd begins with mode 0777: any user who gets a descriptor for reading could open it again for writing. */
	if (fchmod(segment->fd, 0600) < 0)
		return error_set(error, -errno, NULL,
				 "the mode of a memfd of %llu bytes could not be set to 0600: %s",
				 (unsigned long long)segment->bytes, strerror(errno));
	return 0;
}

static const struct host_seals size_seals = {
	.seals = SEALS_SIZE,
	.remedy = "set F_SEAL_GROW and F_SEAL_SHRINK first",
	.without = "its size can still be changed",
};

static int host_map_refused(int code, uint64_t bytes, enum memory_access access, struct error *error)
{
	const char *remedy = NULL;

	if (code == -ENOMEM)
		remedy = "raise RLIMIT_AS, or vm.max_map_count";
	else if (access == MEMORY_WRITE && (code == -EACCES || code == -EPERM))
		remedy = "map it for reading: its descriptor is for reading only, or one writer has sealed it";
	return error_set(error, code, remedy, "mapping %llu bytes of shared host memory failed: %s",
			 (unsigned long long)bytes, strerror(-code));
}

int host_map_shared(const struct memory_device *device, int fd, uint64_t bytes, enum memory_access access,
		    struct memory_segment *ret, struct error *error)
{
	const int protection = access == MEMORY_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
	int r = host_memfd_check(fd, bytes, &size_seals, error);
	struct memory_range range;
	void *mapped;

	if (r == 0)
		r = device->ops->reserve(device, bytes, NULL, &range, error);
	if (r < 0)
		return r;
	mapped = mmap(range.base, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED) {
		r = -errno;
		device->ops->unreserve(device, &range, NULL, 0);
		return host_map_refused(r, bytes, access, error);
	}
	/* A child is no user of the region: nobody would wait for what it reads. So it finds nothing there. */
	madvise(mapped, bytes, MADV_DONTFORK);
	if (bytes >= device->ops->spacing)
		madvise(mapped, bytes / device->ops->spacing * device->ops->spacing, MADV_HUGEPAGE);
	*ret = (struct memory_segment){.fd = -1, .bytes = bytes, .address = mapped};
	return 0;
}
