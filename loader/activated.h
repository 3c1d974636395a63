/* The connection that a socket unit with Accept=yes hands to a loader. */
#ifndef GPUWM_LOADER_ACTIVATED_H
#define GPUWM_LOADER_ACTIVATED_H

#include "../base/errors.h"

/* Takes that connection. It must be what it should be, and its other end must belong to `user` (a
 * name or a number): any other user is refused, root too. Returns 0 and sets *ret_sock. Fails with
 * -EINVAL if there is no such connection, -ENOENT if there is no such user, and -EACCES if the
 * other end is another user's. Then the connection is closed. */
int activated_socket(const char *user, int *ret_sock, struct error *error);

/* Checks that `user` opened the other end of `sock`. Returns 0, or fails as above. activated_socket
 * uses it. */
int activated_peer(int sock, const char *user, struct error *error);

#endif
