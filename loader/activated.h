/* The connection that a socket unit with Accept=yes hands to a loader. */
#ifndef GPUWM_LOADER_ACTIVATED_H
#define GPUWM_LOADER_ACTIVATED_H

#include "../proto/errors.h"

/* Takes it, once it is what it should be and its other end is `user`'s (a name or a number):
 * whoever else could connect, root too, is refused. -EINVAL: no such connection, -ENOENT: no
 * such user, -EACCES: another user's; the connection is closed then. */
int activated_socket(const char *user, int *ret_sock, struct error *error);

/* 0 when the other end of sock was opened by `user`; used by activated_socket. */
int activated_peer(int sock, const char *user, struct error *error);

#endif
