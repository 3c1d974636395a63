/* What decides at a socket's path whether gpuwmd can listen there, and whether another user could listen in its place. gpuwmd judges
 * it at start and for --check-config, and gpuwmctl doctor calls the same function. */
#ifndef GPUWM_PROTO_SOCKET_PLACE_H
#define GPUWM_PROTO_SOCKET_PLACE_H

#include "../base/errors.h"

#include <sys/types.h>

/* of a socket's address, without its terminating zero */
#define SOCKET_PATH_BYTES_MAX 107

/* Fails with -ENAMETOOLONG if no socket can have the path. */
int socket_path_check(const char *path, struct error *error);

/* Looks what lies at the path. Returns 1 for a socket, 0 for nothing. Fails with -EEXIST for anything else, and with another
 * -errno if it can't be looked at. */
int socket_file_check(const char *path, struct error *error);

/* Judges the path for a gpuwmd of this user. Returns 0. Fails with:
 * - -ENAMETOOLONG;
 * - -ENOENT: neither the path's folder is there nor the one above it (gpuwmd makes one folder);
 * - -ENOTDIR: the folder is no folder;
 * - -EEXIST: as socket_file_check;
 * - -EACCES, -EROFS or another errno: gpuwmd can't write into the folder. Judged only for the user of this process;
 * - -EPERM: gpuwmd can listen there, but others can put a socket of their own in its place, since the folder is another user's or
 *   its mode lets them write. */
int socket_place_check(const char *path, uid_t uid, struct error *error);

#endif
