#include "host_memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
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
