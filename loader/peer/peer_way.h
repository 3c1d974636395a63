/* Which transport a take goes by: the first of wires.c that this machine and the server have, and that joins the two. If it does not, the next one. */
#ifndef GPUWM_LOADER_PEER_WAY_H
#define GPUWM_LOADER_PEER_WAY_H

#include "peer_part.h"

#include "../../peer/messages.h"
#include "../../peer/wire.h"

struct peer_way {
	const struct wire_ops *ops; /* the one chosen last; NULL: none yet */
	unsigned without; /* bits by the positions in `wires`: those that did not join the two */
	char better[TEXT_BYTES_MAX + 1]; /* which better ones were not used, and why; "": the best one was */
};

/* Chooses for a server that answered this hello, and has the part on `device`, and for the part of this node. Returns 0, and sets way->ops and way->better. Fails with
 * -EPROTONOSUPPORT if both have none in common. */
int peer_way_choose(struct peer_way *way, const struct peer_hello_result *hello, const char *device,
		    const struct taken_part *part, struct error *error);

/* Judges a take that failed with `error`. Returns whether it is worth a try by the next transport: this one does not join the two,
 * or not well. */
bool peer_way_next(struct peer_way *way, bool met, const struct error *error);

#endif
