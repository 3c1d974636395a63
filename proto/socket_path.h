/* Where gpuwmd's sockets are, for every client. */
#ifndef GPUWM_PROTO_SOCKET_PATH_H
#define GPUWM_PROTO_SOCKET_PATH_H

#include <stdbool.h>
#include <stddef.h>

#define SOCKET_PLACES_MAX 3 /* two of the user's, and the system's */

/* A path where gpuwmd may listen. */
struct socket_place {
	char *path;
	bool is_users; /* the path was not named: only this user and root may listen there */
	char *workers; /* of the user's operators' socket: the workers' one beside it. If somebody listens there, no later place counts */
};
/* The places in the order in which a client tries them: the first one where somebody listens counts. */
struct socket_places {
	struct socket_place items[SOCKET_PLACES_MAX];
	size_t count; /* 1 at least */
};

/* Sets *ret to the places of the workers' socket, or of the operators' one if `admin`. `given` is the workers' socket as the
 * caller names it. NULL: include/gpuwm/client.h says which variables and folders count. A relative path becomes an absolute one, unless
 * that would be too long for a socket's address. socket_places_clear frees the paths. Fails with -ENOMEM. */
int socket_places_find(const char *given, bool admin, struct socket_places *ret);
void socket_places_clear(struct socket_places *places);

/* Returns the first of these places that has a file, else the last one. The caller frees it. NULL: there is no memory. */
char *socket_path(const char *given, bool admin);

/* Returns the folder in which this user's own gpuwmd has its sockets: $XDG_RUNTIME_DIR/gpuwm if that variable names a folder of
 * this user's, else ~/.local/state/gpuwm. The caller frees it. NULL: $HOME names no folder either, or there is no memory. */
char *socket_users_folder(void);
/* Returns ~/.local/state/gpuwm, where this user's gpuwmd has what outlives a session, such as its log. As above. */
char *socket_state_folder(void);

#endif
