#include "watching.h"

#include "../../base/errors.h"

#include <errno.h>
#include <string.h>

int watching_failed(int code, const char *what, struct error *error)
{
	if (code == -ENOSPC)
		return error_set(
			error, -ENOMEM, "raise fs.epoll.max_user_watches (sysctl -w)",
			"gpuwmd could not watch %s: its user has all the epoll watches that it may have", what);
	return error_set(error, code, NULL, "gpuwmd could not watch %s: %s", what, strerror(-code));
}
