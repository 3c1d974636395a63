#include "socket_path.h"

#include "socket_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOCKET_SYSTEM "/run/gpuwm/gpuwm.sock"
#define SOCKET_WORKERS "gpuwm.sock"
#define SOCKET_ADMIN "admin.sock" /* as long as the workers' */
#define RUNTIME_BYTES 32 /* of /run/user/UID */

/* ---- the user's folders ---- */

static bool is_own_folder(const char *path)
{
	struct stat st;

	return path[0] == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* $XDG_RUNTIME_DIR. After `su` it may be another user's. NULL: it is no folder of this user's. */
static const char *runtime_given(void)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

	return runtime && is_own_folder(runtime) ? runtime : NULL;
}

/* The same; else the folder that a login made, which cron, su and sudo do not name. */
static const char *runtime_found(char buffer[RUNTIME_BYTES])
{
	const char *runtime = runtime_given();

	if (runtime)
		return runtime;
	snprintf(buffer, RUNTIME_BYTES, "/run/user/%u", (unsigned)geteuid());
	return is_own_folder(buffer) ? buffer : NULL;
}

/* PARENT/gpuwm; NULL: parent is NULL, or there is no memory. */
static char *folder_in(const char *parent)
{
	char *folder = NULL;

	return parent && asprintf(&folder, "%s/gpuwm", parent) >= 0 ? folder : NULL;
}

char *socket_state_folder(void)
{
	const char *home = secure_getenv("HOME");
	char *folder = NULL;

	return home && home[0] == '/' && asprintf(&folder, "%s/.local/state/gpuwm", home) >= 0 ? folder : NULL;
}

char *socket_users_folder(void)
{
	const char *runtime = runtime_given();

	return runtime ? folder_in(runtime) : socket_state_folder();
}

/* ---- places ---- */

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
	if (!absolute || strlen(absolute) > SOCKET_PATH_BYTES_MAX) {
		free(absolute);
		return path;
	}
	free(path);
	return absolute;
}

/* admin.sock in the folder of the workers' socket. Frees `path`. NULL: path is NULL, or there is no memory. */
static char *path_beside(char *path)
{
	char *admin, *slash = path ? strrchr(path, '/') : NULL;

	if (!path)
		return NULL;
	if (slash)
		slash[1] = 0;
	if (asprintf(&admin, "%s%s", slash ? path : "", SOCKET_ADMIN) < 0)
		admin = NULL;
	free(path);
	return admin;
}

/* Takes the path over. NULL: there is no memory for it, and so none for what is found later. */
static void places_add(struct socket_places *places, char *path, bool is_users)
{
	places->items[places->count++] = (struct socket_place){.path = path, .is_users = is_users};
}

/* Nobody can listen at a path that is too long for a socket's address. Frees `folder`. */
static void add_users(struct socket_places *places, char *folder, bool admin)
{
	char *path;

	if (!folder)
		return;
	if (asprintf(&path, "%s/" SOCKET_WORKERS, folder) < 0)
		path = NULL;
	free(folder);
	if (path && strlen(path) > SOCKET_PATH_BYTES_MAX) {
		free(path);
		return;
	}
	places_add(places, admin && path ? path_beside(strdup(path)) : path, true);
	if (admin)
		places->items[places->count - 1].workers = path;
}

static char *path_named(const char *path, bool admin)
{
	char *absolute = path_absolute(strdup(path));

	return admin ? path_beside(absolute) : absolute;
}

int socket_places_find(const char *given, bool admin, struct socket_places *ret)
{
	const char *named = given ? given : secure_getenv("GPUWM_SOCKET");
	const char *operators = given || !admin ? NULL : secure_getenv("GPUWM_ADMIN_SOCKET");
	char buffer[RUNTIME_BYTES];

	*ret = (struct socket_places){0};
	if (operators && *operators) {
		places_add(ret, path_absolute(strdup(operators)), false);
	} else if (given || (named && *named)) {
		places_add(ret, path_named(named, admin), false);
	} else {
		add_users(ret, folder_in(runtime_found(buffer)), admin);
		add_users(ret, socket_state_folder(), admin);
		places_add(ret, path_named(SOCKET_SYSTEM, admin), false);
	}
	for (size_t i = 0; i < ret->count; i++) {
		if (ret->items[i].path)
			continue;
		socket_places_clear(ret);
		return -ENOMEM;
	}
	return 0;
}

void socket_places_clear(struct socket_places *places)
{
	while (places->count > 0) {
		struct socket_place *place = &places->items[--places->count];

		free(place->path);
		free(place->workers);
	}
}

char *socket_path(const char *given, bool admin)
{
	struct socket_places places;
	char *path;
	size_t i = 0;

	if (socket_places_find(given, admin, &places) < 0)
		return NULL;
	while (i + 1 < places.count && access(places.items[i].path, F_OK) < 0)
		i++;
	path = places.items[i].path;
	places.items[i].path = NULL;
	socket_places_clear(&places);
	return path;
}
