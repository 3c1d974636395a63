#include "socket_place.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
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

bool socket_folder_is_users(const char *folder)
{
	char buffer[RUNTIME_BYTES], *runtime = folder_in(runtime_found(buffer)), *state = socket_state_folder();
	const bool found = (runtime && strcmp(folder, runtime) == 0) || (state && strcmp(folder, state) == 0);

	free(runtime);
	free(state);
	return found;
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

/* ---- whether gpuwmd can listen there ---- */

_Static_assert(SOCKET_PATH_BYTES_MAX == sizeof(((struct sockaddr_un *)0)->sun_path) - 1,
	       "as the kernel has it");

#define ELSEWHERE "or take another --socket"

int socket_path_check(const char *path, struct error *error)
{
	if (strlen(path) <= SOCKET_PATH_BYTES_MAX)
		return 0;
	return error_set(error, -ENAMETOOLONG, "name a shorter path; a client may name a relative one",
			 "the socket's path has %zu bytes, and at most %d are possible: %.512s", strlen(path),
			 SOCKET_PATH_BYTES_MAX, path);
}

int socket_file_check(const char *path, struct error *error)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : error_set(error, -errno, NULL, "%s: %s", path, strerror(errno));
	if (S_ISSOCK(st.st_mode))
		return 1;
	return error_set(error, -EEXIST, "remove it, " ELSEWHERE, "%s exists and is no socket", path);
}

int socket_file_set_access(const char *path, gid_t group, mode_t mode)
{
	char link[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
	int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), r = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISSOCK(st.st_mode))
		r = -ESTALE;
	else if ((group != (gid_t)-1 && fchownat(fd, "", (uid_t)-1, group, AT_EMPTY_PATH) < 0) ||
		 chmod(link, mode) < 0) /* fchmod wants a file that is open */
		r = -errno;
	close(fd);
	return r;
}

int socket_file_remove_stale(const char *path, struct error *error)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : error_set(error, -errno, NULL, "%s: %s", path, strerror(errno));
	if (st.st_uid != geteuid())
		return error_set(error, -EPERM,
				 "remove it if no gpuwmd of that user is to come back, " ELSEWHERE,
				 "the stale socket %s belongs to user %u, and gpuwmd runs as user %u", path,
				 (unsigned)st.st_uid, (unsigned)geteuid());
	if (unlink(path) < 0 && errno != ENOENT)
		return error_set(error, -errno, NULL, "the stale socket %s could not be removed: %s", path,
				 strerror(errno));
	return 0;
}

/* "/" for what lies there. False: the path has no folder. */
static bool folder_of(const char *path, char ret_folder[SOCKET_PATH_BYTES_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	size_t bytes = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);

	memcpy(ret_folder, path, bytes);
	ret_folder[bytes] = '\0';
	return bytes > 0;
}

/* Whether the folder, which is there, can hold a new socket of this process's user. */
static int folder_check_room(const char *folder, uid_t uid, struct error *error)
{
	char remedy[128];
	int r;

	if (uid != geteuid() || faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	r = -errno;
	snprintf(remedy, sizeof(remedy), "uid %u must be able to write there; " ELSEWHERE, (unsigned)uid);
	return error_set(error, r, remedy, "gpuwmd can't write into the folder %s: %s", folder, strerror(-r));
}

/* The folder is not there: gpuwmd makes it in the one above. */
static int folder_check_above(const char *folder, uid_t uid, struct error *error)
{
	char above[SOCKET_PATH_BYTES_MAX + 1];
	struct stat st;

	if (folder_of(folder, above) && stat(above, &st) == 0 && S_ISDIR(st.st_mode))
		return folder_check_room(above, uid, error);
	return error_set(error, -ENOENT,
			 "gpuwmctl start chooses a folder of this user's; or make the folder, " ELSEWHERE,
			 "the socket's folder %s is not there, nor is the one above it", folder);
}

/* Root may do so in any case. In a folder with the sticky bit only its owner removes gpuwmd's socket. */
static int check_others(const struct stat *st, const char *folder, uid_t uid, struct error *error)
{
	const char *who = st->st_mode & S_IWOTH ? "every user" : "its group";
	char remedy[256];

	if (st->st_uid != 0 && st->st_uid != uid) {
		snprintf(remedy, sizeof(remedy), "chown %u '%s', " ELSEWHERE, (unsigned)uid, folder);
		return error_set(error, -EPERM, remedy,
				 "the socket's folder %s belongs to user %u, who can put another socket there",
				 folder, (unsigned)st->st_uid);
	}
	if (!(st->st_mode & (S_IWGRP | S_IWOTH)) || st->st_mode & S_ISVTX)
		return 0;
	snprintf(remedy, sizeof(remedy), "chmod go-w '%s', " ELSEWHERE, folder);
	return error_set(
		error, -EPERM, remedy,
		"the socket's folder %s can be written to by %s, who can put another socket there: its "
		"mode is %04o",
		folder, who, (unsigned)st->st_mode & 07777);
}

int socket_place_check(const char *path, uid_t uid, struct error *error)
{
	char folder[SOCKET_PATH_BYTES_MAX + 1];
	struct stat st;
	int r = socket_path_check(path, error);

	if (r < 0)
		return r;
	if (!folder_of(path, folder))
		strcpy(folder, ".");
	if (stat(folder, &st) < 0) {
		if (errno == ENOENT)
			return folder_check_above(folder, uid, error);
		return error_set(error, -errno, ELSEWHERE, "the socket's folder %s can't be used: %s", folder,
				 strerror(errno));
	}
	if (!S_ISDIR(st.st_mode))
		return error_set(error, -ENOTDIR, "remove it, " ELSEWHERE,
				 "%s is no folder, so that no socket can be in it", folder);
	r = socket_file_check(path, error);
	if (r >= 0)
		r = folder_check_room(folder, uid, error);
	return r < 0 ? r : check_others(&st, folder, uid, error);
}

/* ---- which group may connect ---- */

/* An entry holds the names of all members of the group: the largest buffer has room for 50,000
 * names of 20 bytes. */
#define GROUP_BYTES_FIRST 1024
#define GROUP_BYTES_MAX (1024 * 1024)

void group_name(gid_t gid, char ret_name[GROUP_NAME_BYTES])
{
	struct group entry, *found = NULL;
	char *buffer = NULL;
	int r = ERANGE;

	snprintf(ret_name, GROUP_NAME_BYTES, "%u", (unsigned)gid);
	for (size_t bytes = GROUP_BYTES_FIRST; r == ERANGE && bytes <= GROUP_BYTES_MAX; bytes *= 4) {
		free(buffer);
		buffer = malloc(bytes);
		r = buffer ? getgrgid_r(gid, &entry, buffer, bytes, &found) : ENOMEM;
	}
	if (r == 0 && found)
		snprintf(ret_name, GROUP_NAME_BYTES, "%s", found->gr_name);
	free(buffer);
}
