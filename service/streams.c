#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int streams_open(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0 ||
					       fcntl(STDERR_FILENO, F_GETFD) < 0
				       ? -errno
				       : 0;
		if (fd <= STDERR_FILENO)
			fcntl(fd, F_SETFD, 0);
	} while (fd <= STDERR_FILENO);
	close(fd);
	return 0;
}
