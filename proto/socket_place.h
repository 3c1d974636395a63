/* gpuwmd's sockets: where they are, whether gpuwmd can listen there, and which group may connect. */
#ifndef GPUWM_PROTO_SOCKET_PLACE_H
#define GPUWM_PROTO_SOCKET_PLACE_H

#include "../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- where they are, for every client ---- */

#define SOCKET_PLACES_MAX 3 /* two of the user's, and the system's */

/* A path where gpuwmd may listen. */
struct socket_place {
	char *path;
	bool is_users; /* the path was not named: only this user and root may listen there */
	char *workers; /* of the user's operators' socket: the workers' one beside it. If somebody listens there, no later place counts */
};
/* The places in the order in which a client tries them: the first one where somebody listens counts. */
struct socket_places {
	struct socket_place items[SOCKET_PLACES_MAX];
	size_t count; /* 1 at least */
};

/* Sets *ret to the places of the workers' socket, or of the operators' one if `admin`. `given` is the workers' socket as the
 * caller names it. NULL: include/gpuwm/client.h says which variables and folders count. A relative path becomes an absolute one, unless
 * that would be too long for a socket's address. socket_places_clear frees the paths. Fails with -ENOMEM. */
int socket_places_find(const char *given, bool admin, struct socket_places *ret);
void socket_places_clear(struct socket_places *places);

/* Returns the first of these places that has a file, else the last one. The caller frees it. NULL: there is no memory. */
char *socket_path(const char *given, bool admin);

/* Returns the folder in which this user's own gpuwmd has its sockets: $XDG_RUNTIME_DIR/gpuwm if that variable names a folder of
 * this user's, else ~/.local/state/gpuwm. The caller frees it. NULL: $HOME names no folder either, or there is no memory. */
char *socket_users_folder(void);
/* Returns ~/.local/state/gpuwm, where this user's gpuwmd has what outlives a session, such as its log. As above. */
char *socket_state_folder(void);
/* Returns whether a client of this user finds a gpuwmd in the folder without a variable. False also if there is no memory. */
bool socket_folder_is_users(const char *folder);

/* ---- whether gpuwmd can listen there ----
 * These functions look what decides it, and whether another user could listen in gpuwmd's place. gpuwmd judges it at start and for
 * --check-config, and gpuwmctl doctor calls the same functions. */

/* Of a socket's address, without its terminating zero. */
#define SOCKET_PATH_BYTES_MAX 107

/* Fails with -ENAMETOOLONG if no socket can have the path. */
int socket_path_check(const char *path, struct error *error);

/* Looks what lies at the path. Returns 1 for a socket, 0 for nothing. Fails with -EEXIST for anything else, and with another
 * -errno if it can't be looked at. */
int socket_file_check(const char *path, struct error *error);

/* Gives the socket at the path to a group ((gid_t)-1: leaves it) and sets its mode. Follows no link there, since whoever may write into the
 * folder could put one in the socket's place. Returns 0, or -errno: -ESTALE if something else lies at the path. */
int socket_file_set_access(const char *path, gid_t group, mode_t mode);
/* Removes a socket that nobody serves, if it is this user's. Returns 0 also if it is gone. Fails with -EPERM and the owner's number in the
 * message, and with -errno. */
int socket_file_remove_stale(const char *path, struct error *error);

/* Judges the path for a gpuwmd of this user. Returns 0. Fails with:
 * - -ENAMETOOLONG;
 * - -ENOENT: neither the path's folder is there nor the one above it (gpuwmd makes one folder);
 * - -ENOTDIR: the folder is no folder;
 * - -EEXIST: as socket_file_check;
 * - -EACCES, -EROFS or another errno: gpuwmd can't write into the folder. Judged only for the user of this process;
 * - -EPERM: gpuwmd can listen there, but others can put a socket of their own in its place, since the folder is another user's or
 *   its mode lets them write. */
int socket_place_check(const char *path, uid_t uid, struct error *error);

/* ---- which group may connect, for errors that say which group to join ---- */

/* The longest name that a message shows whole; useradd and groupadd take 32 bytes. */
#define GROUP_NAME_BYTES 64

/* Sets ret_name to the group's name, or to its number if the machine has no name for it. The
 * machine's user database may lie on a network, so this can take long. */
void group_name(gid_t gid, char ret_name[GROUP_NAME_BYTES]);

#endif
