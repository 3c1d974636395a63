/* What makes a user an operator, an observer or a publisher: the remedies of errors that refuse a role. */
#ifndef GPUWM_DAEMON_REMEDY_H
#define GPUWM_DAEMON_REMEDY_H

#include "../proto/group_name.h"
#include "../proto/limits.h"

struct server;

#define REMEDY_BYTES (TEXT_BYTES_MAX + 1)

/* Where operators connect, as gpuwmd finds it when it opens the socket. */
struct operators_socket {
	char path[PATH_BYTES_MAX + 1]; /* "": not open yet */
	char group[GROUP_NAME_BYTES]; /* whose members may connect; "": its owner only */
};

/* Looks at the file of the socket at `path`. */
void operators_socket_look(struct operators_socket *ret, const char *path);

/* Each returns `text`. It names the group to join, if there is one. */
const char *remedy_operator(const struct server *server, char text[REMEDY_BYTES]);
const char *remedy_observer(const struct server *server, char text[REMEDY_BYTES]);
const char *remedy_publisher(const struct server *server, char text[REMEDY_BYTES]);

#endif
