/* One connection that is served. */
#ifndef GPUWM_PEER_SERVE_INTERNAL_H
#define GPUWM_PEER_SERVE_INTERNAL_H

#include "serve.h"

struct serving {
	const struct server *server;
	struct link *link;
	struct served_version *version; /* held since the last find; NULL: none */
	struct taker *taker; /* while it takes; NULL: it does not, or nobody is redirected here */
	struct serve_report *report;
};

/* Answers a request. Returns 0, or fails as peer_send. */
int serve_answer(struct serving *serving, uint64_t id, const struct message_form *form, const void *result,
		 struct error *error);

/* Finds the part that a request is about, and holds its version. Returns 0, -ENOENT or as find. */
int serve_part(struct serving *serving, const struct version_id *version, uint64_t rank,
	       const struct served_part **ret, struct error *error);

/* Serves the request `take`, and everything that follows on the connection. Returns 1 if the peer has all that it wanted: the connection
 * is over. Returns 0 if the peer was redirected. If the request was wrong, sets *ret_refused and *error; then the connection goes on. */
int serve_take(struct serving *serving, const struct message *request, bool *ret_refused, struct error *error);

#endif
