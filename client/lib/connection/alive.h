/* Signs of life of publishers. gpuwmd fails the publish of a publisher that is silent for too long. So a thread of the library, one
 * for each process, sends a ping for each open publish. The thread runs only while there are open publishes. */
#ifndef GPUWM_LIB_ALIVE_H
#define GPUWM_LIB_ALIVE_H

#include "connection.h"

/* Part of a publish. */
struct alive {
	struct connection *connection; /* NULL: no pings are sent */
	int64_t every_ms, next_ms;
	uint64_t generation; /* of fork: in a child, the thread and its list are the parent's */
	struct alive *prev, *next;
};

/* Sends a ping on the connection every so many milliseconds from now on. Takes the connection over in any case. Fails with -EAGAIN
 * if the thread can't be made. */
int alive_begin(struct alive *alive, struct connection *connection, int64_t every_ms, struct error *error);
/* Ends the pings. A zeroed struct and a second call are fine. */
void alive_end(struct alive *alive);

#endif
