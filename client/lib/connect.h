/* A client around a connection that somebody else made. */
#ifndef GPUWM_LIB_CONNECT_H
#define GPUWM_LIB_CONNECT_H

#include "connection.h"

/* A client around a socket that is connected already and needs no hello: the
 * loader's. On success the connection is the client's, and freed with its last use. */
int client_adopt(struct connection *connection, struct gpuwm_client **ret_client);

#endif
