/* Clients that the program has not made by gpuwm_connect, and what is given up with a client. */
#ifndef GPUWM_LIB_CONNECT_H
#define GPUWM_LIB_CONNECT_H

#include "../request/client.h"

/* Connects once more to where the client is connected, which was made by gpuwm_connect. The caller drops it. Fails with -ENOMEM and as
 * gpuwm_connect. */
int client_another(const struct gpuwm_client *like, struct gpuwm_client **ret_client, struct error *error);

/* Makes the loader's client, from a connection that needs no hello. On success the client owns the connection, and frees it with its
 * last use. */
int client_adopt(struct connection *connection, struct gpuwm_client **ret_client);

/* Gives up all claims of a client that is being closed, because its connection may go on. */
void claims_give_up(struct gpuwm_client *client);

#endif
