/* Connecting to gpuwmd. */
#ifndef GPUWM_CTL_CONNECT_H
#define GPUWM_CTL_CONNECT_H

#include "command.h"

/* Connects to the socket that `need` says (SOCKET_NONE: as SOCKET_ANY). Returns what gpuwm_connect returns; gpuwm_close
 * ends the client.
 * Connecting may take until arguments->deadline_ms, or 30 seconds. If gpuwmd does not answer at once, says so on stderr. */
int connect_as(const struct arguments *arguments, enum command_socket need, struct gpuwm_client **ret_client);

/* While connect_as waits for a gpuwmd that has not answered at once, it calls this function, which says more. It is called once for
 * each socket, and not for completions. NULL: none. */
void connect_explain_by(void (*explain)(const struct arguments *arguments));

#endif
