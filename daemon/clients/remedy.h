/* How a user becomes an operator, an observer or a publisher: the remedies of errors that refuse a role. */
#ifndef GPUWM_DAEMON_REMEDY_H
#define GPUWM_DAEMON_REMEDY_H

#include "../../proto/group_name.h"
#include "../../base/limits.h"

struct clients;

#define REMEDY_BYTES (TEXT_BYTES_MAX + 1)

/* The operators' socket, as gpuwmd found it when it opened the socket. */
struct operators_socket {
	char path[PATH_BYTES_MAX + 1]; /* "": not open yet */
	char group[GROUP_NAME_BYTES]; /* its members may connect; "": only the socket's owner may */
};

/* Sets *ret from the socket's file at `path`. */
void operators_socket_look(struct operators_socket *ret, const char *path);

/* Each writes a sentence into `text`, which names the group to join if there is one, and returns `text`. */
const char *remedy_operator(const struct clients *clients, char text[REMEDY_BYTES]);
const char *remedy_observer(const struct clients *clients, char text[REMEDY_BYTES]);
const char *remedy_publisher(const struct clients *clients, char text[REMEDY_BYTES]);

#endif
