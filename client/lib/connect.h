/* A client around a connection that its caller has made. */
#ifndef GPUWM_LIB_CONNECT_H
#define GPUWM_LIB_CONNECT_H

#include "connection.h"

/* Makes the loader's client, from a connection that needs no hello. On success the client owns the connection, and frees it with its
 * last use. */
int client_adopt(struct connection *connection, struct gpuwm_client **ret_client);

#endif
