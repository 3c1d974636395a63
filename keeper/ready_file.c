#include "ready_file.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void ready_file_set(const char *path, bool ready)
{
	int fd, code = 0;

	if (!path)
		return;
	if (!ready) {
		code = unlink(path) < 0 && errno != ENOENT ? errno : 0;
	} else {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
		code = fd < 0 ? errno : 0;
		if (fd >= 0)
			close(fd);
	}
	if (code)
		log_warning("--ready-file %s can't be %s: %s", path, ready ? "made" : "removed",
			    strerror(code));
}
