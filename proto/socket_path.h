/* Where gpuwmd's sockets are, for every client. */
#ifndef GPUWM_PROTO_SOCKET_PATH_H
#define GPUWM_PROTO_SOCKET_PATH_H

#include <stdbool.h>

/* Returns the path of the workers' socket, or of the operators' one if `admin`. `given` is the workers' socket as the caller
 * names it; NULL: client.h says by which variables it is found. A relative path becomes an absolute one, unless that would be
 * too long for a socket's address. The caller frees it. NULL: there is no memory. */
char *socket_path(const char *given, bool admin);

#endif
