/* Signs of life of publishers. gpuwmd gives a publisher up from which it has heard nothing for a while, so a thread of the
 * library, one for each process, sends a ping for each open publish. It runs only while there are open publishes. */
#ifndef GPUWM_LIB_ALIVE_H
#define GPUWM_LIB_ALIVE_H

#include "connection.h"

/* Part of a publish. */
struct alive {
	struct connection *connection; /* NULL: it gives no signs */
	int64_t every_ms, next_ms;
	uint64_t generation; /* of fork: the thread and its list are the parent's */
	struct alive *next, **link;
};

/* From now on the connection, which this takes over in any case, is heard of every so many milliseconds. -EAGAIN: the
 * thread could not be made. */
int alive_begin(struct alive *alive, struct connection *connection, int64_t every_ms, struct error *error);
/* Zeroed is fine, twice too. */
void alive_end(struct alive *alive);

#endif
