#include "socket_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_SYSTEM "/run/gpuwm/gpuwm.sock"
#define SOCKET_ADMIN "admin.sock"

static char *path_default(void)
{
	const char *given = secure_getenv("GPUWM_SOCKET");
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char *path;

	if (given && *given)
		return strdup(given);
	if (runtime && *runtime && asprintf(&path, "%s/gpuwm/gpuwm.sock", runtime) >= 0) {
		if (access(path, F_OK) == 0)
			return path;
		free(path);
	}
	return strdup(SOCKET_SYSTEM);
}

/* A client connects again later, and the process may be in another folder then. What would be too long for a
 * socket's address stays relative. */
static char *path_absolute(char *path)
{
	char *folder, *absolute = NULL;

	if (!path || path[0] == '/' || path[0] == 0)
		return path;
	folder = getcwd(NULL, 0);
	if (!folder || asprintf(&absolute, "%s/%s", folder, path) < 0)
		absolute = NULL;
	free(folder);
	if (!absolute || strlen(absolute) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		free(absolute);
		return path;
	}
	free(path);
	return absolute;
}

/* admin.sock in the folder of the workers' socket. Frees `path`. */
static char *path_beside(char *path)
{
	char *admin, *slash = strrchr(path, '/');

	if (slash)
		slash[1] = 0;
	if (asprintf(&admin, "%s%s", slash ? path : "", SOCKET_ADMIN) < 0)
		admin = NULL;
	free(path);
	return admin;
}

char *socket_path(const char *given, bool admin)
{
	const char *other = given ? NULL : secure_getenv("GPUWM_ADMIN_SOCKET");
	char *path;

	if (admin && other && *other)
		return path_absolute(strdup(other));
	path = path_absolute(given ? strdup(given) : path_default());
	return path && admin ? path_beside(path) : path;
}
