#include "socket_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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
