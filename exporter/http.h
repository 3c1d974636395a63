/* The HTTP server. */
#ifndef GPUWM_EXPORTER_HTTP_H
#define GPUWM_EXPORTER_HTTP_H

#include "routes.h"

#include <stdbool.h>

struct http;

/* Serves at the listening socket, on threads of its own. fd becomes the server's, also after a failure.
 * only_loopback: refuse requests with the name of another host. admission: who sees more than totals. Returns 0 and sets *ret, or fails with
 * -errno and logs why. admission, source and tally live as long as the server. */
int http_new(int fd, bool only_loopback, const struct admission *admission, struct source *source,
	     struct tally *tally, struct http **ret);
/* Ends the server and all connections. http may be NULL. Returns NULL. */
struct http *http_free(struct http *http);

/* Cuts slow connections. Call it every HTTP_LOOK_MS. */
void http_look(struct http *http);

#endif
