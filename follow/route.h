/* A route: the requests for a name of a model go to one backend of the load balancer. */
#ifndef GPUWM_FOLLOW_ROUTE_H
#define GPUWM_FOLLOW_ROUTE_H

#include "fleet.h"
#include "trouble.h"
#include "../proto/names.h"

/* A backend's name in HAProxy has no limit of its own; it is as long as other names here. */
#define BACKEND_BYTES_MAX NAME_BYTES_MAX
#define ROUTES_MAX                                                                                             \
	64 /* as many as models that one gpuwmd holds at a time, and more than one load balancer has */

struct route {
	char ref[2 * NAME_BYTES_MAX + 2]; /* "llama@prod", for the log */
	char model[NAME_BYTES_MAX + 1], name[NAME_BYTES_MAX + 1]; /* name: an alias, or a tag */
	char backend[BACKEND_BYTES_MAX + 1];
	struct fleet fleet;
	char version[VERSION_ID_TEXT]; /* that the name stands for; "": none */
	char tag[NAME_BYTES_MAX + 1];
	bool adopted; /* the fleet has what the load balancer had at the start */
	size_t slots_in_use; /* of the backend, when nothing had to be changed; 0: not known, or none */
	struct trouble idle, full, refused, odd, forgotten;
};

/* The list of all servers, as JSON, which the hook gets. Returns a malloced text, whose form gpuwm-follow(8) has; NULL: out of memory. The
 * same servers give the same text. */
char *list_text(const struct route *routes, size_t count);

#endif
